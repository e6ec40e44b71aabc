import sys, shutil, time
from tests.faults import single, loading, waiting
from tests.faults.scenario import SCENARIOS, Draw
from tests.faults.bench import Bench, on_disk, RunError
seed=int(sys.argv[1]); names=sys.argv[2:] or list(SCENARIOS)
d=on_disk(); t0=time.time()
b=Bench(d)
with b.recording("a"):
    for n in names:
        t=time.time()
        s=SCENARIOS[n](Draw(seed,n))
        try: r=b.run(s)
        except RunError as e: print(n,'FAILED',e); continue
        tr=r.truth
        print(f"{n:7} {time.time()-t:5.2f}s span {tr.span_ns/1e6:7.1f} idle {tr.idle_ns/1e6:7.1f}", {k:round(v/1e6,1) for k,v in sorted(tr.causes.items(),key=lambda x:-x[1]) if v>3e5}, f"thr={r.throttled_ns/1e6:.0f} rd={tr.main.run_delay_ns/1e6:.0f}", '|', s.parameters, s.language, flush=True)
print(time.time()-t0); import os; print(os.path.getsize(d/'a.gputop')); shutil.copy(d/'a.gputop','/tmp/fs/all.gputop')
shutil.rmtree(d)
