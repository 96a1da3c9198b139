from fedbench.cli.figure import main

raise SystemExit(main())
