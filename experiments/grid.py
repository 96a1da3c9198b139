from fedbench.cli.grid import main

raise SystemExit(main())
