"""The client on a real mount of a real cluster."""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import xxhash

import sheaf
from realmount import Cluster, running
from sheaf import Entry
from sheaf.errors import Code

pytestmark = pytest.mark.mount

SECONDS = 60  # for anything that should end at once


@pytest.fixture
def client(cluster: Cluster) -> Iterator[sheaf.Client]:
    """A client; after the test the mount holds no batch."""
    with sheaf.Client(cluster.mnt) as made:
        yield made
    until(lambda: not cluster.batches(), lambda: f"batches left: {cluster.batches()}")


def until(true: Callable[[], bool], why: Callable[[], str]) -> None:
    """Wait for what the mount does on its own time."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def many(cluster: Cluster) -> list[str]:
    return sorted(name for name in cluster.objects if name.startswith("b/many/"))


def test_version(client: sheaf.Client) -> None:
    assert client.version()


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("coloc", [0, 1, 2])
def test_order_duplicates_members_and_buckets(client: sheaf.Client, cluster: Cluster, coloc: int, copy: bool) -> None:
    rng = random.Random(coloc)
    names = rng.choices([*cluster.objects, *cluster.members], k=200)
    names += ["b/empty", names[0], "c/pre/1", names[0], "b/empty", "b/shards/train-1.tar@/empty.cls"]
    names = [n for n in names if n != "b/big"]
    with client.batch(names, coloc=coloc, copy=copy) as batch:
        assert len(batch) == len(names)
        for item, name in zip(batch, names, strict=True):
            assert bytes(item.data) == cluster.bytes_of(name), name
            assert item.checksum == xxhash.xxh3_64_intdigest(item.data)
            assert str(item.entry) == name
            assert item.data.readonly


def test_a_thousand_entries(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)
    assert len(names) == 1000
    random.Random(1).shuffle(names)
    with client.batch([n.removeprefix("b/") for n in names], bucket="b") as batch:
        assert bytes(batch.data) == b"".join(cluster.objects[n] for n in names)
        offset = 0
        for i, name in enumerate(names):
            assert batch.row(i) == (offset, len(cluster.objects[name]))
            offset += len(cluster.objects[name])


def test_a_large_object(client: sheaf.Client, cluster: Cluster) -> None:
    with client.batch(["b/big", "b/empty", "b/big"]) as batch:
        assert batch[0].data == cluster.objects["b/big"]
        assert batch[2].data == cluster.objects["b/big"]


def test_only_empty_objects(client: sheaf.Client) -> None:
    with client.batch(["b/empty"] * 3) as batch:
        assert [bytes(item.data) for item in batch] == [b""] * 3


def test_ranges(client: sheaf.Client, cluster: Cluster) -> None:
    big = cluster.objects["b/big"]
    member = max(cluster.members, key=lambda n: len(cluster.members[n]))
    shard, _, path = member.removeprefix("b/").partition("@/")
    data = cluster.members[member]
    wanted = [
        (Entry("b", "big", start=0, length=10), big[:10]),
        (Entry("b", "big", start=(4 << 20) - 3, length=7), big[(4 << 20) - 3 : (4 << 20) + 4]),
        (Entry("b", "big", start=len(big) - 5, length=-1), big[-5:]),
        (Entry("b", "big", start=len(big), length=-1), b""),
        (Entry("b", "big", length=-1), big),
        (Entry("b", shard, path, 100, 50), data[100:150]),
        (Entry("b", shard, path, 100, -1), data[100:]),
    ]
    with client.batch([e for e, _ in wanted]) as batch:
        for item, (entry, expect) in zip(batch, wanted, strict=True):
            assert bytes(item.data) == expect, entry
    for entry, expect in wanted:
        assert client.get(entry) == expect, entry


def test_range_beyond_the_end(client: sheaf.Client, cluster: Cluster) -> None:
    size = len(cluster.objects["b/big"])
    for entry in (Entry("b", "big", start=size + 1, length=-1), Entry("b", "big", start=size - 1, length=2)):
        with pytest.raises(sheaf.RangeError) as caught:
            client.batch(["b/empty", entry])
        assert (caught.value.index, caught.value.code) == (1, Code.RANGE_NOT_SATISFIABLE)
        with pytest.raises(sheaf.RangeError):
            client.get(entry)


@pytest.mark.parametrize("missing", ["b/many/none", "b/shards/train-0.tar@/none", "b/shards/none.tar@/000/s.jpg"])
@pytest.mark.parametrize("strm", [True, False])
def test_missing_is_raised(client: sheaf.Client, cluster: Cluster, missing: str, strm: bool) -> None:
    names = many(cluster)[:50]
    names[31] = missing
    with pytest.raises(sheaf.NotFoundError) as caught:
        client.batch(names, strm=strm)
    err = caught.value
    assert (err.index, str(err.entry), err.code, err.errno) == (31, missing, Code.NOT_FOUND, errno.ENOENT)
    assert missing.partition("/")[2].partition("@/")[0] in str(err)


def test_missing_is_returned(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)[:60]
    for i in range(0, 60, 4):
        names[i] = f"b/none/{i}"
    names[1] = "b/shards/train-0.tar@/none"
    with client.batch(names, on_error="return") as batch:
        for i, (item, name) in enumerate(zip(batch, names, strict=True)):
            if i % 4 == 0 or i == 1:
                assert isinstance(item.error, sheaf.NotFoundError)
                assert (item.error.index, item.error.entry, item.data.nbytes) == (i, item.entry, 0)
                assert str(item.error.message)
            else:
                assert item.error is None
                assert bytes(item.data) == cluster.objects[name]


def test_all_missing(client: sheaf.Client) -> None:
    with client.batch(["b/none"] * 20, on_error="return") as batch:
        assert all(isinstance(item.error, sheaf.NotFoundError) for item in batch)


def test_too_many_soft_errors(client: sheaf.Client) -> None:
    with pytest.raises(sheaf.SheafError):
        client.batch(["b/none"] * 20, on_error="return", max_soft_errors=3)


@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_missing_bucket(client: sheaf.Client, on_error: str) -> None:
    with pytest.raises(sheaf.BucketNotFoundError):
        client.batch(["nosuchbucket/x"], on_error=on_error)  # type: ignore[arg-type]  # a str from a table


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("b", "x", start=5), "start 5 needs a length"),
        (Entry("b", "x", start=-1, length=1), "start -1"),
        (Entry("b", ""), "empty"),
        (Entry("", "x"), "no bucket"),
        (Entry("b", "../x"), "component"),
        (Entry("b", "x", opaque="o" * 2000), "opaque"),
        (Entry("b", "x", provider="s3"), "provider"),
    ],
)
def test_refusals_have_the_reason_of_the_mount(client: sheaf.Client, entry: Entry, words: str) -> None:
    with pytest.raises(sheaf.InvalidArgumentError, match=words) as caught:
        client.batch(["b/empty", entry])
    assert caught.value.errno == errno.EINVAL
    assert "entry 1" in str(caught.value)


def test_refused_options(client: sheaf.Client) -> None:
    for options in ({"coloc": 9}, {"id": "a/b"}, {"timeout": 1e9}):
        with pytest.raises(sheaf.InvalidArgumentError) as caught:
            client.batch(["b/empty"], **options)
        assert len(str(caught.value)) > len(os.strerror(errno.EINVAL))


def test_too_many_entries(client: sheaf.Client) -> None:
    with pytest.raises(sheaf.TooManyEntriesError, match="limit is 65536") as caught:
        client.batch(["b/empty"] * 65_537)
    assert caught.value.errno == errno.E2BIG


def test_as_many_entries_as_there_may_be(client: sheaf.Client) -> None:
    with client.batch(["b/empty"] * 65_536) as batch:
        assert len(batch) == 65_536
        assert batch.nbytes == 0
        assert batch[65_535].error is None


def test_id(client: sheaf.Client, cluster: Cluster) -> None:
    with client.batch(["b/empty"], id="mine-1"):
        assert (cluster.mnt / ".sheaf" / "batch" / "mine-1").is_dir()
        with pytest.raises(sheaf.AlreadyExistsError):
            client.batch(["b/empty"], id="mine-1")
    assert "mine-1" not in cluster.batches()
    client.batch(["b/empty"], id="mine-1").close()


def test_files_of_the_batch_agree(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)[:10]
    with client.batch(names) as batch:
        folder = cluster.mnt / ".sheaf" / "batch" / batch.id
        for item in batch:
            assert (folder / "entries" / f"{item.index:06d}").read_bytes() == item.data


def test_submit(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)[:100]
    pending = [client.submit(names[i:] + names[:i]) for i in range(8)]
    for i, p in enumerate(pending):
        batch = p.result(SECONDS)
        assert p.done()
        assert p.wait()
        status = p.status()
        assert (status["id"], status["state"], status["n"], status["ok"]) == (p.id, "done", 100, 100)
        assert bytes(batch[0].data) == cluster.objects[names[i]]
        p.release()
        with pytest.raises(sheaf.NotFoundError):
            p.status()


def test_result_with_a_timeout(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)
    with client.batch(names, timeout=SECONDS) as batch:
        assert bytes(batch[999].data) == cluster.objects[names[999]]


def test_timeout(client: sheaf.Client, cluster: Cluster) -> None:
    with pytest.raises(TimeoutError) as caught:
        client.batch(["b/big"] * 20, timeout=0.000_1)
    assert isinstance(caught.value, sheaf.TimeoutError)


def test_cancel(client: sheaf.Client) -> None:
    pending = client.submit(["b/big"] * 30)
    pending.cancel()
    # It may have been faster.
    try:
        assert len(pending.result(SECONDS)) == 30
    except sheaf.CanceledError:
        assert pending.done()
    pending.release()


def test_release_wakes_who_waits(client: sheaf.Client) -> None:
    pending = client.submit(["b/big"] * 30)
    ended = threading.Event()

    def wait() -> None:
        with contextlib.suppress(sheaf.CanceledError):
            pending.result().close()
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    pending.release()
    assert ended.wait(SECONDS)
    thread.join()


def test_views_outlive_all(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)[:200]
    views = []
    for i in range(0, 200, 20):
        with client.batch(names[i : i + 20]) as batch:
            views += [item.data for item in batch]
    client.close()
    del batch
    gc.collect()
    until(lambda: not cluster.batches(), lambda: "the mount holds batches that were released")
    for view, name in zip(views, names, strict=True):
        assert bytes(view) == cluster.objects[name]


def test_dropping_releases(client: sheaf.Client, cluster: Cluster) -> None:
    batch = client.batch(["b/c"], on_error="return")
    assert cluster.batches() == {batch.id}
    del batch
    assert not cluster.batches()


def test_more_batches_than_the_mount_holds(client: sheaf.Client) -> None:
    for _ in range(300):
        client.batch(["b/empty"]).close()
    held = [client.batch(["b/empty"]) for _ in range(256)]
    with pytest.raises(sheaf.TimeoutError):
        client.batch(["b/empty"], timeout=0.3)
    thread = threading.Timer(0.3, held[0].close)
    thread.start()
    client.batch(["b/empty"]).close()
    thread.join()


def test_threads_share_a_client(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(15):
            mine = rng.choices(names, k=40)
            with client.batch(mine) as batch:
                failures.extend(
                    n for item, n in zip(batch, mine, strict=True) if bytes(item.data) != cluster.objects[n]
                )

    threads = [threading.Thread(target=work, args=[i]) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def run_child(body: Callable[[], None]) -> None:
    """Fork, run ``body`` in the child, and see that it went well."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child must end here
            import traceback

            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_fork(client: sheaf.Client, cluster: Cluster) -> None:
    names = many(cluster)[:30]
    batch = client.batch(names)
    running_one = client.submit(names[::-1])

    def child() -> None:
        nonlocal batch, running_one
        assert bytes(batch[3].data) == cluster.objects[names[3]]
        assert bytes(running_one.result(SECONDS)[0].data) == cluster.objects[names[-1]]
        with client.batch(names[5:7]) as own:
            assert bytes(own[1].data) == cluster.objects[names[6]]
        assert client.get(names[0]) == cluster.objects[names[0]]
        batch.close()
        running_one.release()
        del batch, running_one
        gc.collect()

    run_child(child)
    assert {batch.id, running_one.id} <= cluster.batches()
    assert bytes(running_one.result(SECONDS)[0].data) == cluster.objects[names[-1]]
    assert bytes(batch[3].data) == cluster.objects[names[3]]
    batch.close()
    running_one.release()
    assert not cluster.batches()


def sums(client: sheaf.Client, names: list[str]) -> list[int]:
    """In a worker process: the checksums of some objects."""
    with client.batch(names) as batch:
        return [xxhash.xxh3_64_intdigest(item.data) for item in batch]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_worker_processes(client: sheaf.Client, cluster: Cluster, method: str) -> None:
    names = many(cluster)[:100]
    want = [xxhash.xxh3_64_intdigest(cluster.objects[n]) for n in names]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        parts = [pool.submit(sums, client, names[i : i + 10]) for i in range(0, 100, 10)]
        assert [s for part in parts for s in part.result(SECONDS)] == want
        with pytest.raises(sheaf.NotFoundError) as caught:
            pool.submit(sums, client, [names[0], "b/none"]).result(SECONDS)
    assert caught.value.index == 1


def test_pickle(client: sheaf.Client, cluster: Cluster) -> None:
    back = pickle.loads(pickle.dumps(client))
    assert back.get("b/many/0007.bin") == cluster.objects["b/many/0007.bin"]


def start_program(cluster: Cluster, text: str) -> subprocess.Popen[str]:
    """A Python program of its own, with ``client``, whose stdout is read."""
    head = f"import os, sheaf, sys, time\nclient = sheaf.Client({os.fspath(cluster.mnt)!r})\n"
    return subprocess.Popen([sys.executable, "-c", head + text], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "after",
    ["pending.result(); time.sleep(600)", "pending.wait(); time.sleep(600)", "os.fork(); time.sleep(5)"],
)
def test_a_killed_process_frees_its_batch(client: sheaf.Client, cluster: Cluster, after: str) -> None:
    text = f"pending = client.submit(['b/big'] * 8)\nprint(pending.id, flush=True)\n{after}\n"
    with start_program(cluster, text) as process:
        assert process.stdout is not None
        id_ = process.stdout.readline().strip()
        assert id_ in cluster.batches()
        time.sleep(0.2)
        process.kill()
        process.wait()
        until(lambda: id_ not in cluster.batches(), lambda: f"{id_} outlived its process")


def test_interrupt(client: sheaf.Client, cluster: Cluster) -> None:
    text = """
print("go", flush=True)
try:
    while True:
        client.batch(["b/big"] * 10).close()
except KeyboardInterrupt:
    print("interrupted", os.listdir(client.mount + "/.sheaf/batch"), flush=True)
    print("and well", len(client.get("b/big")), flush=True)
"""
    size = len(cluster.objects["b/big"])
    for wait in (0.05, 0.21, 0.33):
        with start_program(cluster, text) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "go\n"
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=SECONDS)
            assert out == f"interrupted []\nand well {size}\n"
            assert process.returncode == 0


def test_an_exit_without_close(client: sheaf.Client, cluster: Cluster) -> None:
    text = "held = [client.batch(['b/empty']), client.submit(['b/big'] * 5)]\nprint(held[0].id)\n"
    with start_program(cluster, text) as process:
        out, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
    until(lambda: out.strip() not in cluster.batches(), lambda: "a batch outlived its process")


def test_get(client: sheaf.Client, cluster: Cluster) -> None:
    for name in ("b/many/0001.bin", "b/empty", "b/big", "b/a b/ünï…cödé", "c/pre/2", next(iter(cluster.members))):
        assert client.get(name) == cluster.bytes_of(name)
        assert client.get(name, timeout=SECONDS) == cluster.bytes_of(name)
    for name in ("b/none", "b/many", "b/shards/train-0.tar@/none"):
        with pytest.raises(sheaf.NotFoundError):
            client.get(name)
    with pytest.raises(sheaf.BucketNotFoundError):
        client.get("nosuchbucket/x")


def test_a_mount_that_dies() -> None:
    with running(nodes=1) as short:
        short.sheaf("bucket", "create", "b")
        path = short.base / "o"
        data = random.Random(3).randbytes(1 << 20)
        path.write_bytes(data)
        short.sheaf("put", path, "b/o")
        client = sheaf.Client(short.mnt)
        copied = client.batch(["b/o"], copy=True)
        pending = client.submit(["b/o"] * 4)
        assert bytes(copied[0].data) == data
        short.process.kill()
        short.process.wait()
        uses: list[Callable[[], object]] = [
            lambda: client.batch(["b/o"]),
            lambda: client.batch(["b/o"], timeout=SECONDS),
            lambda: client.get("b/o"),
            client.version,
            pending.status,
            pending.result,
            lambda: sheaf.Client(short.mnt),
        ]
        for use in uses:
            with pytest.raises(sheaf.MountError):
                use()
        assert bytes(copied[0].data) == data
        copied.close()
        pending.release()


def test_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    """Over many batches this process keeps no descriptor and no mapping."""

    def look() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count(os.fspath(cluster.mnt))
        return len(os.listdir("/proc/self/fd")), maps

    with sheaf.Client(cluster.mnt) as client:
        client.batch(["b/empty"]).close()
        before = look()
        for _ in range(50):
            with client.batch(many(cluster)[:8]) as batch:
                assert len([item.data for item in batch]) == 8
        assert look() == before
