from fedbench.cli.metrics import main

raise SystemExit(main())
