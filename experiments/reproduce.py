from fedbench.cli.reproduce import main

raise SystemExit(main())
