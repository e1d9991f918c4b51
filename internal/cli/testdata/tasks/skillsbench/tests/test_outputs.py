def test_count():
    with open("/root/count.txt") as f:
        assert f.read().strip() == "5"
