"""A small robot, written for msgq and nothing else: `robot.py fork|spawn|forkserver`.

A planner in a process of its own turns readings into plans; a bench leads it reading by reading with fake events; a
camera sends frames; and a second planner takes the first one's place. What it prints is the same at every run.
"""

import multiprocessing
import struct
import sys

import msgq
from msgq.visionipc import VisionIpcClient, VisionIpcServer, get_endpoint_name

PATIENCE_S = 30
PATIENCE_MS = 1000 * PATIENCE_S
WIDTH, HEIGHT, FRAMES = 64, 32, 3
ROAD, DRIVER = 0, 1


def said(sock):
    """The next message, as text. The publisher may be starting, so waiting is in turns, as msgq's own programs do."""
    sock.setTimeout(100)
    for _ in range(PATIENCE_MS // 100):
        data = sock.receive()
        if data is not None:
            return data.decode()
    raise SystemExit("nothing came")


def plan():
    """Every reading becomes a plan, made with the newest position."""
    poller = msgq.Poller()
    imu = msgq.sub_sock("imu", poller)
    gps = msgq.sub_sock("gps", poller, conflate=True)
    plans = msgq.pub_sock("plan")
    plans.wait_for_readers(PATIENCE_S)
    plans.send(b"ready")
    position = None
    while True:
        if not poller.poll(PATIENCE_MS):
            raise SystemExit("no reading came")
        newest = gps.receive(non_blocking=True)
        position = position if newest is None else newest.decode()
        for reading in msgq.drain_sock_raw(imu):
            if reading == b"stop":
                return
            plans.send(f"{reading.decode()} at {position}".encode())


def free(context):
    imu, gps, plans = msgq.pub_sock("imu"), msgq.pub_sock("gps"), msgq.sub_sock("plan")
    planner = context.Process(target=plan)
    planner.start()
    print("planner:", said(plans))
    imu.wait_for_readers(PATIENCE_S)
    for where in ("here", "there", "home"):
        gps.send(where.encode())
    for number in range(20):
        imu.send(f"reading {number}".encode())
    heard = [said(plans) for _ in range(20)]
    assert heard == [f"reading {number} at home" for number in range(20)], heard
    print("planned:", heard[0], "...", heard[-1])
    imu.send(b"stop")
    planner.join(PATIENCE_S)
    print("planner ended:", planner.exitcode)


def follow(prefix):
    """Answers each order with its number among those that came; an empty turn is answered too."""
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix(prefix)
    orders, answers = msgq.sub_sock("orders"), msgq.pub_sock("answers")
    count = 0
    while True:
        order = orders.receive(non_blocking=True)
        if order == b"stop":
            return
        count += order is not None
        answers.send(b"%d" % count)


def led(context):
    """The bench lets the follower go only when it likes, so that each turn is known."""
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix("bench")
    handles = {name: msgq.fake_event_handle(name, enable=True) for name in ("orders", "unused")}
    called, ready = handles["orders"].recv_called_event, handles["orders"].recv_ready_event
    orders = msgq.pub_sock("orders")
    follower = context.Process(target=follow, args=("bench",))
    follower.start()
    called.wait(PATIENCE_S)  # it waits at its first receive, so its publisher is there
    answers = msgq.sub_sock("answers", timeout=PATIENCE_MS)
    heard = []
    for turn in range(6):
        index = msgq.wait_for_one_event([handle.recv_called_event for handle in handles.values()], PATIENCE_S)
        assert list(handles)[index] == "orders"
        called.clear()
        if turn % 2 == 0:
            orders.send(b"go")
        ready.set()
        heard.append(said(answers))
    print("led:", *heard)
    called.wait(PATIENCE_S)
    orders.send(b"stop")
    ready.set()
    follower.join(PATIENCE_S)
    msgq.toggle_fake_events(False)
    msgq.delete_fake_prefix()
    print("follower ended:", follower.exitcode)


def film():
    server = VisionIpcServer("camera")
    server.create_buffers(ROAD, 4, WIDTH, HEIGHT)
    server.create_buffers(DRIVER, 2, 2 * WIDTH, HEIGHT)
    server.start_listener()
    shutter = msgq.sub_sock("shutter")
    ready = msgq.pub_sock("camera")
    ready.wait_for_readers(PATIENCE_S)
    ready.send(b"ready")
    for number in range(FRAMES):
        said(shutter)
        image = bytearray(WIDTH * HEIGHT * 3 // 2)
        struct.pack_into("<I", image, 0, 1000 + number)
        server.send(ROAD, image, frame_id=number, timestamp_sof=10 * number, timestamp_eof=10 * number + 5)
    said(shutter)


def watch(context):
    shutter, ready = msgq.pub_sock("shutter"), msgq.sub_sock("camera")
    camera = context.Process(target=film)
    camera.start()
    print("camera:", said(ready))
    print("streams:", sorted(VisionIpcClient.available_streams("camera", True)), get_endpoint_name("camera", ROAD))
    client = VisionIpcClient("camera", ROAD, False)
    assert client.connect(True)
    assert client.is_connected()
    print(
        "frames:", client.width, client.height, client.stride, client.uv_offset, client.buffer_len, client.num_buffers
    )
    for number in range(FRAMES):
        shutter.wait_for_readers(PATIENCE_S)
        shutter.send(b"now")
        buffer = client.recv(PATIENCE_MS)
        assert buffer is not None
        assert (buffer.frame_id, client.frame_id, buffer.width) == (number, number, WIDTH)
        print("frame:", struct.unpack_from("<I", buffer.data)[0], client.timestamp_sof, client.timestamp_eof)
    shutter.wait_for_readers(PATIENCE_S)
    shutter.send(b"stop")
    camera.join(PATIENCE_S)
    print("camera ended:", camera.exitcode)


def usurp():
    msgq.pub_sock("wheel").send(b"mine")


def taken_over(context):
    wheel = msgq.pub_sock("wheel")
    wheel.send(b"ours")
    other = context.Process(target=usurp)
    other.start()
    other.join(PATIENCE_S)
    try:
        wheel.send(b"ours still")
    except msgq.MultiplePublishersError:
        print("taken over")


def main():
    context = multiprocessing.get_context(sys.argv[1])
    free(context)
    led(context)
    watch(context)
    taken_over(context)


if __name__ == "__main__":
    main()
