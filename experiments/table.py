from fedbench.cli.table import main

raise SystemExit(main())
