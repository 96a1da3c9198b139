from fedbench.cli.demo import main

raise SystemExit(main())
