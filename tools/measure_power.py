"""Power of one GPU while it idles, copies memory and multiplies: the constants of a hardware profile.

Needs PyTorch with CUDA and nvidia-smi. `python3 tools/measure_power.py` prints, a line a load: work per second, watts (mean,
least, most over the settled part), clock. docs/profiles.md says how a profile's idle_w, joules_per_byte and joules_per_flop
follow from them.
"""
import subprocess
import threading
import time

import torch


def query(fields):
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def watch(label, work, seconds=9.0):
    """Repeats `work`, which returns what it did, and reads power beside it; the first 3 s are left out."""
    samples, running = [], True

    def sample():
        while running:
            watts, clock = query("power.draw.instant,clocks.sm").split(",")
            samples.append((time.time(), float(watts), float(clock)))

    reader = threading.Thread(target=sample)
    reader.start()
    start, done = time.time(), 0
    while time.time() - start < seconds:
        done += work()
    torch.cuda.synchronize()
    rate = done / (time.time() - start)
    running = False
    reader.join()
    settled = [s for s in samples if start + 3 < s[0] < start + seconds - 0.3]
    watts = [s[1] for s in settled]
    clock = sum(s[2] for s in settled) / len(settled)
    mean = sum(watts) / len(watts)
    print(f"{label:22} {rate:9.3g}/s  {mean:6.1f} W ({min(watts):.1f} to {max(watts):.1f})  {clock:.0f} MHz", flush=True)


def repeat(times, once, amount):
    def work():
        for i in range(times):
            once(i)
        torch.cuda.synchronize()
        return times * amount

    return work


def main():
    print(query("name,memory.total,driver_version,power.draw,power.limit,clocks.sm,clocks.mem"))
    data = torch.randn(8 << 30, device="cuda", dtype=torch.bfloat16)
    half = data.numel() // 2
    bytes_of = data.numel() * 2

    def idle():
        time.sleep(0.1)
        return 0

    watch("idle, memory filled", idle)
    watch("copy, bytes", repeat(20, lambda _: data[:half].copy_(data[half:]), bytes_of))
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    watch("product 8192^3, flop", repeat(50, lambda _: a @ b, 2 * n**3))
    weights = data[: 7168 * 18432 * 48].view(48, 18432, 7168)
    for rows in (16, 64, 128, 256):
        x = torch.randn(rows, 7168, device="cuda", dtype=torch.bfloat16)
        watch(f"{rows} rows, 264 MB each", repeat(48, lambda i, x=x: x @ weights[i].t(), 1), 7.0)
    watch("idle again", idle)


if __name__ == "__main__":
    main()
