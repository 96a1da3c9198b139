from fedbench.cli.run import main

raise SystemExit(main())
