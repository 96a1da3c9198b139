from fedbench.cli.wandb import main

raise SystemExit(main())
