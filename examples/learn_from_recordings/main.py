"""From the bus to a policy and back: a robot is recorded, a policy learns from windows of the recording, and drives.

A cart on rails is steered to the middle by an expert, who sees position and speed. The policy sees positions only.
With --spark, jobs of Spark make the lake and the grid of it, as for a fleet (needs ringmain[spark]).
"""

import sys
import tempfile
import threading
import time

import msgspec
import numpy as np

import ringmain as rm
from ringmain.datasets import Episodes, Grid, Windows, episodes_of

HZ, STEPS, TRIALS = 100, 40, 10
SEEN = 4  # steps that the policy sees


class Position(msgspec.Struct):
    x: float


class Action(msgspec.Struct):
    push: float


class Trial(msgspec.Struct):
    number: int


class Seen(msgspec.Struct):
    last: list[float]


class Cart:
    """It stands somewhere, and friction is all that stops it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x, self.speed = rng.uniform(-1, 1), rng.uniform(-3, 3)

    def step(self, push: float, seconds: float) -> None:
        self.speed += (push - 0.5 * self.speed) * seconds
        self.x += self.speed * seconds


def expert(cart: Cart) -> float:
    return -60 * cart.x - 14 * cart.speed


def record_trials(directory: str) -> None:
    rng = np.random.default_rng(0)
    with (
        rm.Publisher("position", type=Position, contract="reliable") as position,
        rm.Publisher("action", type=Action, contract="reliable") as action,
        rm.Publisher("trial/begin", type=Trial, contract="reliable") as begin,
        rm.Publisher("trial/end", type=Trial, contract="reliable") as end,
        rm.Recorder(directory, ["position", "action", "trial/*"]),
    ):
        for number in range(TRIALS):
            cart, push = Cart(rng), 0.0
            begin.send(Trial(number))
            before = time.monotonic()
            for _ in range(STEPS):
                time.sleep(1 / HZ)
                now = time.monotonic()
                cart.step(push, min(now - before, 0.05))  # as long as it took
                before = now
                push = expert(cart)
                position.send(Position(cart.x))
                action.send(Action(push))
            end.send(Trial(number))


def by_spark(directory: str, grid: Grid, trials: Episodes) -> Windows:
    from ringmain import pipeline
    from ringmain.datasets import build
    from ringmain.lake import Lake

    pipeline.run(directory, f"{directory}/lake")
    print(build(f"{directory}/lake", "trials", grid, trials))
    return Windows(Lake(f"{directory}/lake"), table="trials", length=SEEN)


def train(windows: Windows) -> np.ndarray:
    """A linear policy, by batches of windows in an order that its seed says."""
    weights, order = np.zeros(SEEN), windows.order(seed=1)
    squares, products = np.zeros((SEEN, SEEN)), np.zeros(SEEN)
    for numbers in order.batches(64):
        batch = windows.batch(numbers)
        seen, push = batch["position.x"], batch["action.push"][:, -1]
        squares += seen.T @ seen
        products += seen.T @ push
        weights = np.linalg.solve(squares + 1e-4 * np.eye(SEEN), products)
    return weights


def drive(weights: np.ndarray) -> float:
    """The policy in the loop with the simulator, as a service. How far from the middle the carts are, at the end."""
    server = rm.Server("policy", request=Seen, reply=Action)
    thread = threading.Thread(target=server.serve, args=(lambda seen: Action(float(weights @ seen.last)),))
    thread.start()
    rng, ends = np.random.default_rng(1), []
    try:
        with rm.Client("policy", request=Seen, reply=Action) as client:
            for _ in range(5):
                cart = Cart(rng)
                seen = [cart.x]
                for _ in range(2 * STEPS):
                    push = client.call(Seen(seen[-SEEN:]), timeout=60).push if len(seen) >= SEEN else 0.0
                    cart.step(push, 1 / HZ)
                    seen.append(cart.x)
                ends.append(abs(cart.x))
    finally:
        server.close()
        thread.join()
    return float(np.mean(ends))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        record_trials(f"{directory}/cart")
        grid = Grid(hz=HZ, topics={"position": "linear", "action": "newest"})
        trials = Episodes(start="trial/begin", end="trial/end")
        table = episodes_of(f"{directory}/cart", grid, trials)
        print(f"{len(table)} episodes: {table.column('state').value_counts().to_pylist()}")
        windows = Windows(f"{directory}/cart", grid=grid, episodes=trials, length=SEEN)
        if "--spark" in sys.argv:
            of_recording, windows = windows, by_spark(directory, grid, trials)
            assert np.array_equal(of_recording[0]["position.x"], windows[0]["position.x"])
            assert len(of_recording) == len(windows)
        learning, held_back = windows.split(0.8, 0.2, by="episode", seed=1)
        weights = train(learning)
        batch = held_back.batch(range(len(held_back)))
        error = np.sqrt(np.mean((batch["position.x"] @ weights - batch["action.push"][:, -1]) ** 2))
        print(f"{len(learning)} windows learnt from; on {len(held_back)} others it is off by {error:.2g}")
    before, after = drive(np.zeros(SEEN)), drive(weights)
    print(f"from the middle at the end: {before:.2g} untrained, {after:.2g} trained")
    assert after < before / 3


if __name__ == "__main__":
    main()
