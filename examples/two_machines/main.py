"""Between two machines: a bridge on each carries a topic out of shared memory, over tcp, and into shared memory again.
Here both are this machine, each with a runtime directory of its own; with `tcp://*:5555` and the other's name in place
of the loopback, and keys, it is the same. Needs ringmain[zmq]."""

import os
import subprocess
import sys
import tempfile

import ringmain as rm

COUNT = 100
FAR_SIDE = f"""
import ringmain as rm

with rm.Subscriber("imu", start="oldest") as imu:
    print("ready", flush=True)
    for number in range({COUNT}):
        message = imu.recv_message(timeout=60)
        assert (message.seq, message.sender, message.lost) == (number, "robot", 0), message
    print(f"the far side read {{number + 1}} messages, the last at {{message.time_ns}} ns", flush=True)
"""


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as far:
        far_side = {**os.environ, "RINGMAIN_DIR": far}
        with (
            rm.Publisher("imu", sender="robot") as imu,
            rm.bridge("imu", "zmq:imu@tcp://127.0.0.1:*") as out,  # `ringmain bridge imu zmq:imu@tcp://...`
        ):
            carry = [sys.executable, "-m", "ringmain", "bridge", f"zmq:imu@{out.target.address.endpoint}", "imu"]
            with (
                subprocess.Popen([sys.executable, "-c", FAR_SIDE], env=far_side, stdout=subprocess.PIPE) as reader,
                subprocess.Popen(carry, env=far_side, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as carrier,
            ):
                assert reader.stdout is not None
                reader.stdout.readline()
                out.target.wait_for_readers(1, timeout=60)  # the other bridge has connected
                for number in range(COUNT):
                    imu.send(b"%d" % number)
                print(reader.stdout.readline().decode().strip())
                assert reader.wait(timeout=60) == 0
                carrier.terminate()
        print(f"carried {out.traffic.carried}, dropped {out.traffic.dropped}")
        assert out.traffic.carried == COUNT


if __name__ == "__main__":
    main()
