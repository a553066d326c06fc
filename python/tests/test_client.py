"""The client against a mount of ordinary files."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

import sheaf
from fakemount import FakeClient, FakeMount, Manifest
from sheaf import Entry
from sheaf.errors import Code


@pytest.fixture
def client(fake: FakeMount) -> FakeClient:
    return FakeClient(fake.root)


def manifest_of(fake: FakeMount) -> Manifest:
    return next(c for c in reversed(fake.commands) if "op" not in c)


def test_not_a_mount(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(sheaf.MountError, match="not a Sheaf mount"):
            sheaf.Client(path)


def test_dead_mount(fake: FakeMount, client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr("builtins.open", dead)
    with pytest.raises(sheaf.MountError, match="mount is dead") as caught:
        client.version()
    assert caught.value.errno == errno.ENOTCONN


def test_version(client: FakeClient) -> None:
    assert client.version() == "fake 1"


def test_items_in_order_with_duplicates_and_empty(client: FakeClient) -> None:
    names = ["b/d/two", "b/one", "b/empty", "b/d/two", "c/one", "b/s.tar@/x/m.txt"]
    with client.batch(names) as batch:
        assert len(batch) == 6
        assert [bytes(item.data) for item in batch] == [
            b"the second",
            b"first",
            b"",
            b"the second",
            b"of another bucket",
            b"a member",
        ]
        assert [item.index for item in batch] == list(range(6))
        assert batch[5].entry == Entry("b", "s.tar", "x/m.txt")
        assert bytes(batch[-1].data) == b"a member"
        assert [item.index for item in batch[1:4:2]] == [1, 3]
        assert all(item.error is None for item in batch)
        assert all(item.checksum == xxhash.xxh3_64_intdigest(item.data) for item in batch)
        assert batch.nbytes == len(batch.data) == sum(len(item.data) for item in batch)
        offset, length = batch.row(1)
        assert bytes(batch.data[offset : offset + length]) == b"first"
        for i in (6, -7):
            with pytest.raises(IndexError):
                batch[i]


def test_views_are_read_only_and_outlive_the_batch(client: FakeClient, fake: FakeMount) -> None:
    for copy in (False, True):
        batch = client.batch(["b/one", "b/d/two"], copy=copy)
        item = batch[1]
        whole = batch.data
        batch.close()
        batch.close()
        assert fake.ops()[-1] == "release"
        assert item.data.readonly
        assert bytes(item.data) == b"the second"
        assert bytes(whole) == b"firstthe second"
        uses: list[Callable[[sheaf.Batch], object]] = [
            lambda b: b[0],
            lambda b: b.data,
            lambda b: next(iter(b)),
            lambda b: b.row(0),
            lambda b: b.nbytes,
        ]
        for use in uses:
            with pytest.raises(ValueError, match="closed"):
                use(batch)


def test_a_batch_without_bytes(client: FakeClient) -> None:
    with client.batch(["b/empty", "b/empty"]) as batch:
        assert [bytes(item.data) for item in batch] == [b"", b""]
        assert batch.nbytes == 0


def test_manifest(client: FakeClient, fake: FakeMount) -> None:
    client.batch(["one", {"objname": "one", "bucket": "c", "opaque": "é"}], bucket="b", timeout=30, coloc=2).close()
    sent = manifest_of(fake)
    assert sent.pop("id").startswith("py-")
    assert sent == {
        "bind": True,
        "ttl": 86400,
        "bucket": "b",
        "in": [{"objname": "one"}, {"objname": "one", "bucket": "c", "opaque": "é"}],
        "timeout": 30,
        "coloc": 2,
    }
    client.batch([Entry("b", "one", start=1, length=2)], on_error="return", strm=False, id="mine").close()
    assert manifest_of(fake) == {
        "id": "mine",
        "bind": True,
        "ttl": 86400,
        "in": [{"objname": "one", "bucket": "b", "start": 1, "length": 2}],
        "coer": True,
        "max_soft_errors": -1,
        "strm": False,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": "ignore"}, "on_error"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"max_soft_errors": 3}, "max_soft_errors"),
    ],
)
def test_options_that_cannot_be(client: FakeClient, fake: FakeMount, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        client.batch(["b/one"], **options)
    assert not fake.commands


def test_missing_entry_is_raised(client: FakeClient, fake: FakeMount) -> None:
    with pytest.raises(sheaf.NotFoundError, match=r"entry 1 \(b/none\): .*not found") as caught:
        client.batch(["b/one", "b/none", "b/d/two"])
    err = caught.value
    assert (err.index, err.entry, err.code, err.errno) == (1, Entry("b", "none"), Code.NOT_FOUND, errno.ENOENT)
    assert fake.ops()[-1] == "release"
    assert fake.ended()


def test_a_failure_is_the_same_each_time(client: FakeClient) -> None:
    pending = client.submit(["b/one", "b/none"])
    for _ in range(3):
        with pytest.raises(sheaf.NotFoundError) as caught:
            pending.result()
        assert caught.value.index == 1


def test_missing_entry_is_returned(client: FakeClient) -> None:
    with client.batch(["b/one", "b/none", "b/d/two", "b/gone"], on_error="return") as batch:
        assert [bytes(item.data) for item in batch] == [b"first", b"", b"the second", b""]
        errors = [item.error for item in batch]
        assert errors[0] is None
        assert errors[2] is None
        assert isinstance(errors[1], sheaf.NotFoundError)
        assert str(errors[3]) == "entry 3 (b/gone): getbatch b/gone: not found"
        assert batch.row(1) == (5, 0)


def test_a_failed_batch_has_its_code(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    for name, code, cls in [
        ("ENOENT", Code.BUCKET_NOT_FOUND, sheaf.BucketNotFoundError),
        ("EHOSTUNREACH", Code.SENDER_LOST, sheaf.SenderLostError),
        ("EIO", Code.CHECKSUM_MISMATCH, sheaf.ChecksumError),
    ]:
        pending = client.submit(["b/one"], on_error="return")
        fake.fail(pending.id, name, code, "why")
        with pytest.raises(cls, match=r"^why$") as caught:
            pending.result()
        assert caught.value.index is None


def test_a_failed_batch_without_an_index(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    pending = client.submit(["b/one"])
    fake.fail(pending.id, "EHOSTUNREACH", Code.UNAVAILABLE, "no node answers")
    (fake.root / ".sheaf" / "batch" / pending.id / "index").unlink()
    (fake.root / ".sheaf" / "batch" / pending.id / "status").touch()
    with pytest.raises(sheaf.UnavailableError, match="no node answers") as caught:
        pending.result()
    assert caught.value.retryable


def test_refusal_has_the_reason_of_the_mount(client: FakeClient, fake: FakeMount) -> None:
    for number, msg, cls in [
        (errno.EINVAL, "manifest: invalid argument: coloc 9: want 0, 1 or 2", sheaf.InvalidArgumentError),
        (errno.E2BIG, "manifest: too many entries", sheaf.TooManyEntriesError),
        (errno.EEXIST, "id in use", sheaf.AlreadyExistsError),
    ]:
        fake.refuse = lambda _, number=number, msg=msg: (number, msg)  # type: ignore[misc]  # bound per turn
        with pytest.raises(cls) as caught:
            client.batch(["b/one"])
        assert str(caught.value) == msg
        assert caught.value.errno == number
        assert fake.ended()
    fake.refuse = lambda _: (errno.EINVAL, "")
    with pytest.raises(sheaf.InvalidArgumentError, match="Invalid argument"):
        client.batch(["b/one"])


def test_text_that_is_no_utf8(client: FakeClient) -> None:
    with pytest.raises(sheaf.InvalidArgumentError, match="isn't text"):
        client.batch([os.fsdecode(b"b/\xff")])


def test_index_and_data_that_do_not_fit(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    breaks: list[Callable[[Path], object]] = [
        lambda d: (d / "index").write_bytes(b""),
        lambda d: (d / "index").write_bytes((d / "index").read_bytes() * 2),
        lambda d: (d / "index").unlink(),
        lambda d: (d / "data").unlink(),
    ]
    for break_it in breaks:
        pending = client.submit(["b/one"])
        fake.finish(pending.id)
        folder = fake.root / ".sheaf" / "batch" / pending.id
        break_it(folder)
        with pytest.raises((sheaf.ProtocolError, sheaf.NotFoundError)):
            pending.result()
        assert not folder.exists()
    pending = client.submit(["b/one", "b/d/two"])
    fake.finish(pending.id)
    os.truncate(fake.root / ".sheaf" / "batch" / pending.id / "data", 14)
    batch = pending.result()
    assert bytes(batch[0].data) == b"first"
    with pytest.raises(sheaf.ProtocolError, match=r"entry 1 .*byte 15 of data that has 14"):
        batch[1]


def test_short_writes(client: FakeClient, fake: FakeMount) -> None:
    fake.write_limit = 7
    with client.batch(["b/one"] * 100) as batch:
        assert len(batch) == 100


def test_submit(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    with client.submit(["b/one"]) as pending:
        assert len(pending) == 1
        assert not pending.done()
        assert not pending.wait(0.05)
        assert pending.status()["state"] == "running"
        with pytest.raises(sheaf.TimeoutError):
            pending.result(timeout=0.01)
        fake.finish(pending.id)
        assert pending.wait(10)
        assert pending.done()
        batch = pending.result()
        assert pending.result() is batch
        assert bytes(batch[0].data) == b"first"
    assert fake.ops()[-1] == "release"
    with pytest.raises(sheaf.NotFoundError):
        pending.status()


def test_wait_without_a_timeout_blocks_in_the_read(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    pending = client.submit(["b/one"])
    timer = threading.Timer(0.2, fake.finish, [pending.id])
    timer.start()
    began = time.process_time()
    assert pending.wait()
    assert time.process_time() - began < 0.1
    timer.join()
    pending.release()


def test_many_threads_wait_for_one_batch(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    pending = client.submit(["b/one"])
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda t: got.append(pending.result(t)), args=[t]) for t in (None, 10.0, None, 10.0)
    ]
    for t in threads:
        t.start()
    time.sleep(0.05)
    assert not pending.wait(0.01)
    fake.finish(pending.id)
    for t in threads:
        t.join(10)
    assert len(got) == 4
    assert len(set(map(id, got))) == 1


def test_timeout_gives_the_batch_up(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    with pytest.raises(sheaf.TimeoutError):
        client.batch(["b/one"], timeout=0.05)
    assert fake.ops() == ["submit", "release"]
    assert fake.ended()


def test_cancel(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    pending = client.submit(["b/one"])
    pending.cancel()
    with pytest.raises(sheaf.CanceledError):
        pending.result()
    pending.cancel()
    assert fake.ops() == ["submit", "cancel", "release"]


def test_release_wakes_who_waits(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    pending = client.submit(["b/one"])
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            pending.result()
        except sheaf.CanceledError as err:
            failed.append(err)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    pending.release()
    thread.join(10)
    assert len(failed) == 1
    assert fake.ended()
    with pytest.raises(sheaf.CanceledError):
        pending.result()


def test_interrupt_releases(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.batch(["b/one"])
    timer.join()
    assert fake.ops() == ["submit", "release"]
    assert fake.ended()


def test_no_room_is_waited_out(client: FakeClient, fake: FakeMount) -> None:
    left = [3]

    def full(command: Manifest) -> tuple[int, str] | None:
        left[0] -= 1
        return (errno.EAGAIN, "") if left[0] >= 0 and "op" not in command else None

    fake.refuse = full
    client.batch(["b/one"], timeout=10).close()
    assert fake.ops() == ["submit"] * 4 + ["release"]
    left[0] = 3
    client.batch(["b/one"]).close()
    left[0] = 1 << 30
    with pytest.raises(sheaf.TimeoutError, match="no room"):
        client.batch(["b/one"], timeout=0.05)
    assert all(fake.ended(i) for i in range(len(fake.sessions)))


def test_a_mount_that_dies_meanwhile(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    pending = client.submit(["b/one"])
    timer = threading.Timer(0.1, fake.close)
    timer.start()
    with pytest.raises(sheaf.MountError):
        pending.wait()
    timer.join()


def test_a_damaged_event(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    for text in (b"{\n", b"[]\n"):
        pending = client.submit(["b/one"])
        fake.sessions[-1].sendall(text)
        with pytest.raises(sheaf.ProtocolError):
            pending.wait(1)
        pending.release()


def test_dropping_releases(client: FakeClient, fake: FakeMount) -> None:
    batch = client.batch(["b/one"])
    data = batch[0].data
    gc.disable()
    try:
        del batch
        assert fake.ops() == ["submit", "release"]
    finally:
        gc.enable()
    assert bytes(data) == b"first"
    fake.hold = True
    pending = client.submit(["b/one"])
    del pending
    assert fake.ops()[2:] == ["submit", "release"]


def test_close_releases_all(client: FakeClient, fake: FakeMount) -> None:
    batch = client.batch(["b/one"])
    fake.hold = True
    pending = client.submit(["b/one"])
    client.close()
    client.close()
    assert sorted(fake.ops()) == ["release", "release", "submit", "submit"]
    assert bytes(batch[0].data) == b"first"
    with pytest.raises(sheaf.CanceledError):
        pending.wait()
    with pytest.raises(ValueError, match="closed"):
        client.batch(["b/one"])


def test_pickle(client: FakeClient) -> None:
    with client, client.batch(["b/one"]) as batch:
        back = pickle.loads(pickle.dumps(client))
        assert back.mount == client.mount
        assert back.get("b/one") == b"first"
        for thing in (batch, client.submit(["b/one"])):
            with pytest.raises(TypeError, match="pickle the Client"):
                pickle.dumps(thing)


def run_child(body: Callable[[], None]) -> int:
    """Fork; the exit status of a child that runs ``body``: 0 when it returns."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child must end here
            import traceback

            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_fork(client: FakeClient, fake: FakeMount) -> None:
    fake.hold = True
    done = client.submit(["b/one"])
    fake.finish(done.id)
    batch = done.result()
    running = client.submit(["b/d/two"])
    before = len(fake.commands)

    def child() -> None:
        nonlocal batch, done, running
        fake.hold = False
        assert bytes(batch[0].data) == b"first"
        assert not running.done()
        fake.finish(running.id)
        assert bytes(running.result()[0].data) == b"the second"
        assert client.get("c/one") == b"of another bucket"
        client.batch(["b/one"]).close()
        batch.close()
        running.release()
        del batch, done, running
        gc.collect()
        assert [c["op"] for c in fake.commands[before:] if "op" in c] == ["wait", "release"]

    assert run_child(child) == 0
    assert not fake.ended()
    fake.finish(running.id)
    assert bytes(running.result()[0].data) == b"the second"


def test_get(client: FakeClient, fake: FakeMount) -> None:
    assert client.get("b/one") == b"first"
    assert client.get("d/two", bucket="b") == b"the second"
    assert client.get("b/s.tar@/x/m.txt") == b"a member"
    assert client.get("b/empty") == b""
    assert client.get(Entry("b", "one", start=1, length=2)) == b"ir"
    assert client.get(Entry("b", "one", start=1, length=-1)) == b"irst"
    assert not fake.commands


def test_get_of_what_has_no_file(client: FakeClient, fake: FakeMount) -> None:
    fake.objects["b", "a//b", ""] = b"odd"
    fake.objects["b", "s.tar@/x/m.txt", ""] = b"an object of that name"
    fake.objects["b", "d", ""] = b"shadowed by a directory"
    assert client.get("b/a//b") == b"odd"
    assert client.get({"bucket": "b", "objname": "s.tar@/x/m.txt"}) == b"an object of that name"
    assert client.get("b/d") == b"shadowed by a directory"
    assert client.get("b/one", timeout=5) == b"first"
    with pytest.raises(sheaf.NotFoundError):
        client.get("b/none")
    assert fake.ops() == ["submit", "release"] * 5


def test_nothing_grows(client: FakeClient, fake: FakeMount) -> None:
    """Neither memory nor descriptors, over many batches."""

    def some() -> None:
        for _ in range(20):
            with client.batch(["b/one", "b/d/two"]) as batch:
                assert len(batch) == 2
        for s in fake.sessions:
            s.close()
        fake.sessions.clear()
        fake.commands.clear()

    some()
    descriptors = len(os.listdir("/proc/self/fd"))
    gc.collect()
    tracemalloc.start()
    try:
        some()
        gc.collect()
        base = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            some()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - base < 20_000
    finally:
        tracemalloc.stop()
    assert len(os.listdir("/proc/self/fd")) == descriptors
