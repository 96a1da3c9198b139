from fedbench.cli.claims import main

raise SystemExit(main())
