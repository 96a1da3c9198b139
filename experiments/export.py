from fedbench.cli.export import main

raise SystemExit(main())
