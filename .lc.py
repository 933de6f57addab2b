import sys, collections, pathlib, tempfile
sys.path.insert(0,'.')
from tests.fuzz import test_fuzz as t
total=collections.Counter(); folder=pathlib.Path(tempfile.mkdtemp())
kind=sys.argv[1]
for seed in range(int(sys.argv[2]), int(sys.argv[3])):
    if kind=='calls':
        c=t.run(2000, seed, folder, 3000); c.pop('by',None)
    else:
        c=t.damaged(2000, seed, folder, 3000)
    total.update(c)
    print(seed, dict(total), flush=True)
