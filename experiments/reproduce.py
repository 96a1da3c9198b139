from fedbench_papers.tables.command import main

raise SystemExit(main())
