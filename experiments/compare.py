from fedbench.cli.compare import main

raise SystemExit(main())
