from fedbench.cli.completion import main

raise SystemExit(main())
