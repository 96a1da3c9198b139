from fedbench.cli.doctor import main

raise SystemExit(main())
