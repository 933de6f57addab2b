# SPDX-License-Identifier: MIT
"""A three-layer perceptron, step by step on the raw graph.

    python demos/simple_mlp.py [--plot loss.png]

Nothing is hidden here: tensors, ops, a graph that computes the loss and its gradients, and a second
graph that updates the weights. Everything else in pyggml is built from these parts. The task is to
separate two spirals that wind around each other, which no straight line does.
"""

import argparse
import sys
import time

import numpy as np

import pyggml as pg
from pyggml import ops
from pyggml.recipes import plot_curves, script_options

parser = argparse.ArgumentParser(description="A three-layer perceptron on the raw graph.")
options = script_options(parser, plot="the loss")
STEPS, LOSS = 500, 0.05  # what must be reached
pg.set_threads(1)  # so small a graph that a second thread would only be waited for
N, HIDDEN, CLASSES = 256, 32, 2  # N points, two numbers each

# 1. The data: points on two spirals, half a turn apart.
rng = np.random.default_rng(options.seed)
label = np.arange(N) % 2
radius = rng.uniform(0.1, 1.0, N)
angle = 7.0 * radius + np.pi * label
points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
points += rng.normal(0.0, 0.01, points.shape)

# 2. Tensors with memory of their own: inputs, labels, and weights W (out, in) with their biases.
x = pg.tensor(points.astype(np.float32))  # (N, 2)
y = pg.tensor(label.astype(np.int32))  # (N,)
weights = []
for fan_in, fan_out in ((2, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)):
    drawn = rng.normal(0.0, np.sqrt(2.0 / fan_in), (fan_out, fan_in))
    weights += [pg.tensor(drawn.astype(np.float32)), pg.zeros((fan_out,))]
w1, b1, w2, b2, w3, b3 = weights

# 3. The forward pass. Nothing is computed yet: each line records an op, with its shape checked.
h1 = ops.relu(ops.linear(x, w1, b1))  # (N, HIDDEN)
h2 = ops.relu(ops.linear(h1, w2, b2))  # (N, HIDDEN)
logits = ops.linear(h2, w3, b3)  # (N, CLASSES)
loss = ops.cross_entropy(logits, y)  # ()

# 4. The backward pass: ggml adds an op for every op above, in reverse. The gradients are added into
#    tensors that we give, so they must be cleared before each step.
grads = {w: pg.zeros(w.shape) for w in weights}
gradient_graph = pg.Graph([loss, logits], loss=loss, grads=grads)

# 5. The update, a graph of its own: w <- w - rate * dw. The rate is a tensor, so that changing it
#    records nothing anew. [rate, weight decay] is what the op asks for.
rate = pg.tensor([0.0, 0.0])
updates = [ops.opt_step_sgd(w, dw, rate) for w, dw in grads.items()]
update_graph = pg.Graph([], effects=updates)
print(f"forward and backward: {gradient_graph.n_nodes} ops, {gradient_graph.memory_bytes:,} bytes")
print(f"update: {update_graph.n_nodes} ops")

# 6. A gradient is a claim that can be checked: move one weight a little, and see the loss move.
#    One of the last layer: behind it there is no ReLU, whose kink differences would step over.
gradient_graph.run()
dw = grads[w3].numpy()
at = np.unravel_index(np.abs(dw).argmax(), dw.shape)
values, found = w3.numpy(), []
for change in (1e-2, -1e-2):
    moved = values.copy()
    moved[at] += change
    w3.copy_(moved)
    gradient_graph.run()
    found.append(gradient_graph.read(loss).item())
w3.copy_(values)
measured = (found[0] - found[1]) / 2e-2
print(f"gradient of one weight: {dw[at]:+.5f}, by differences {measured:+.5f}")
if abs(dw[at] - measured) > 1e-2 * abs(measured):
    sys.exit("FAILED: the gradient must be that of differences")

# 7. Training: clear, compute, update. Each run is one C call.
losses = []
for step in range(STEPS):
    for gradient in grads.values():
        gradient.zero_()
    gradient_graph.run()
    rate.copy_([0.4 * (1.0 - step / STEPS), 0.0])  # falls to nothing
    update_graph.run()
    losses.append(gradient_graph.read(loss).item())
    if step % (STEPS // 10) == 0 or step == STEPS - 1:
        right = (gradient_graph.read(logits).argmax(axis=1) == label).mean()
        print(f"step {step + 1:4}  loss {losses[-1]:.4f}  right {right:6.1%}")

if options.plot:
    plot_curves(options.plot, {"loss": losses}, title="two spirals, three layers", log="y")
took = time.process_time()  # seconds of CPU time
if not losses[-1] < LOSS:
    sys.exit(f"FAILED: the loss must be below {LOSS}; got {losses[-1]:.4f}")
print(f"OK loss {losses[-1]:.4f} < {LOSS} in {took:.1f} s")
