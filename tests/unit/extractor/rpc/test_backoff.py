from runekeep_extractor.rpc.backoff import Backoff


def test_waits_grow_to_the_bound_and_begin_again():
    backoff = Backoff(first=1.0, most=4.0)
    ceilings = [1.0, 2.0, 4.0, 4.0, 4.0]
    for _ in range(200):
        backoff.reset()
        assert all(0 <= backoff.next_wait() <= ceiling for ceiling in ceilings)
