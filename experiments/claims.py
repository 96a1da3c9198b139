from fedbench_papers.claims.command import main

raise SystemExit(main())
