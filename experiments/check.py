from fedbench.cli.check import main

raise SystemExit(main())
