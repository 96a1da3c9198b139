from fedbench.cli.watch import main

raise SystemExit(main())
