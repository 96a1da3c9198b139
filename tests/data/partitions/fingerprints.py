"""What every scheme deals, the same on every machine."""

FINGERPRINTS = {
    "iid": "1f6ef757d3c1c247",
    "shards": "479a3e1ac653d997",
    "pathological": "e01d68eab2bc6b8a",
    "dirichlet": "b5c4defa622c5fa5",
    "dirichlet-fixed": "782e772c11c85570",
    "practical": "0d774650dd759475",
    "domain": "a4fccab92344a97f",
    "domain-shards": "c72c25b6a197b2af",
    "corruption": "594e717982729d06",
}


OPTIONS = {"train_size": 50, "test_size": 10, "public": 20}
