from fedbench.cli.methods import main

raise SystemExit(main())
