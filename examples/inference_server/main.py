"""An inference server takes requests of many clients in batches. One is killed with a batch, and another answers."""

import multiprocessing
import os
import signal

import msgspec
import numpy as np

import ringmain as rm

CLIENTS, CALLS = 8, 50


class Observation(msgspec.Struct):
    client: int
    step: int
    values: list[float]


class Action(msgspec.Struct):
    choice: int


def serve(dies: bool) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 3))
    answered = 0
    with rm.Server("infer", request=Observation, reply=Action, name=f"model {os.getpid()}") as server:
        for batch in server.batches(max_requests=CLIENTS, wait_s=0.001):
            choices = (np.array([request.data.values for request in batch]) @ weights).argmax(axis=1)
            if dies and answered > CLIENTS * CALLS // 4:
                os.kill(os.getpid(), signal.SIGKILL)  # with the whole batch in its hands
            for request, choice in zip(batch, choices, strict=True):
                request.reply(Action(int(choice)))
            answered += len(batch)


def act(number: int, steps: "multiprocessing.Queue[int]") -> None:
    values = np.random.default_rng(number).normal(size=(CALLS, 4)).tolist()
    with rm.Client("infer", request=Observation, reply=Action) as client:
        for step in range(CALLS):
            # retry: a second server may compute it again
            action = client.call(Observation(number, step, values[step]), timeout=60, retry=True)
            assert 0 <= action.choice < 3
    steps.put(CALLS)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    steps = context.Queue()
    servers = [context.Process(target=serve, args=(dies,)) for dies in (True, False)]
    clients = [context.Process(target=act, args=(number, steps)) for number in range(CLIENTS)]
    for process in servers + clients:
        process.start()
    done = sum(steps.get(timeout=120) for _ in clients)
    for process in clients:
        process.join()
    print(f"{done} calls answered; the servers ended with {servers[0].exitcode} and {servers[1].exitcode}")
    assert done == CLIENTS * CALLS
    for process in servers:
        process.kill()
        process.join()
    rm.clean()


if __name__ == "__main__":
    main()
