from fedbench.cli.report import main

raise SystemExit(main())
