from fedbench.cli.data import main

raise SystemExit(main())
