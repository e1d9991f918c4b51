EXPECTED = ["the fabricated entry is b, and only b"]
