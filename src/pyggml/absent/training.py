# SPDX-License-Identifier: MIT
"""Names of optimizers, schedulers, data sets and modules, and what serves instead."""

from __future__ import annotations

__all__ = ["PARTS"]

_HOOKS = "parameter.register_hook, or a train.Callback"
_STATE_HOOKS = "module.state_dict() and load_state_dict(state), around which you may compute"
_SETS = "data.ArrayDataset of the arrays put together"
_SAMPLED = "data.Loader(dataset, batch_size), which shuffles, or x[ids] of your own numbers"

PARTS: dict[str, dict[str, str]] = {
    "optim": {
        "ASGD": "optim.SGD and optim.EMA, which averages the weights",
        "Adadelta": "optim.AdamW",
        "Adamax": "optim.AdamW",
        "NAdam": "optim.AdamW",
        "RAdam": "optim.AdamW with optim.schedules.warmup",
        "Rprop": "optim.LBFGS on all data at once",
        "SparseAdam": "optim.Adam: gradients are dense",
        "lr_scheduler": "optim.schedules: optimizer.lr = schedule(step) before each step",
        "swa_utils": "optim.EMA",
        "swap_in_optimizer_params_and_state": "optimizer.load_state_dict(state)",
    },
    "schedules": {
        "ChainedScheduler": "lambda step: a(step) * b(step), a product of schedules",
        "ConstantLR": "schedules.join of schedules.constant(lr / 3) and schedules.constant(lr)",
        "CosineAnnealingLR": "schedules.cosine(lr, steps)",
        "CosineAnnealingWarmRestarts": "schedules.cosine_restarts(lr, steps)",
        "CyclicLR": "schedules.join of schedules.linear(low, high, n) and back, in turns",
        "ExponentialLR": "lambda step: lr * gamma**step",
        "LRScheduler": "a function of the step: optimizer.lr = schedule(step)",
        "LambdaLR": "a function of the step: optimizer.lr = lr * f(step)",
        "LinearLR": "schedules.linear(start, end, steps)",
        "MultiStepLR": "schedules.join of schedules.constant(lr)",
        "MultiplicativeLR": "optimizer.lr = optimizer.lr * f(step), before each step but the first",
        "OneCycleLR": "schedules.one_cycle(peak, total_steps)",
        "PolynomialLR": "schedules.polynomial(lr, steps, power=power)",
        "ReduceLROnPlateau": "optim.ReduceOnPlateau(schedule)",
        "SequentialLR": "schedules.join(schedules, boundaries)",
        "StepLR": "lambda step: lr * gamma ** (step // step_size)",
    },
    "init": {
        "dirac_": "weight.copy_(numbers), with ones in the middle of the kernels",
        "eye": "init.eye_(weight)",
        "orthogonal": "init.orthogonal_(weight)",
        "sparse": "weight.copy_(numbers), of which some are 0",
        "sparse_": "weight.copy_(numbers), of which some are 0",
        "dirac": "weight.copy_(numbers), with ones in the middle of the kernels",
    },
    "data": {
        "BatchSampler": _SAMPLED,
        "ChainDataset": _SETS,
        "ConcatDataset": _SETS,
        "DataLoader": "data.Loader, whose batches are arrays: x, y = pg.tensor(x), pg.tensor(y)",
        "DistributedSampler": "train.Trainer(distributed='auto'), which shares the batches",
        "IterableDataset": "any iterator of batches (x, y), in a loop of your own",
        "RandomSampler": _SAMPLED,
        "Sampler": _SAMPLED,
        "SequentialSampler": "data.Loader(dataset, batch_size, shuffle=False).once()",
        "StackDataset": "data.ArrayDataset",
        "Subset": "data.ArrayDataset(x[ids], y[ids])",
        "SubsetRandomSampler": "data.ArrayDataset(x[ids], y[ids])",
        "TensorDataset": "data.ArrayDataset",
        "WeightedRandomSampler": "F.cross_entropy(logits, y, weight), with weights of the classes",
        "default_collate": "np.stack(samples)",
        "default_convert": "pg.tensor(values)",
        "get_worker_info": "nothing: data.Prefetch makes batches in one thread",
        "random_split": "data.split_images, or two data.ArrayDataset",
    },
    "trainer": {
        "compile": "Trainer(model, train, optimizer=…, loss=…, metrics=[…])",
        "predict": "train.predict(trainer.model, x)",
        "train": "trainer.fit()",
        "validate": "trainer.evaluate()",
        "test": "trainer.evaluate()",
        "score": "trainer.evaluate()",
        "fit_transform": "trainer.fit()",
        "save_model": "pg.io.save_safetensors('m.safetensors', trainer.model.state_dict())",
        "load": "trainer.resume(path)",
        "train_on_batch": "train.TrainStep, or a loop of your own with loss.backward()",
    },
    "optimizer": {
        "add_param_group": "another optimizer, of both groups of parameters",
        "defaults": "optimizer.groups",
        "param_groups": "optimizer.groups; optimizer.lr = value sets the learning rate of all",
        **dict.fromkeys(
            (
                "OptimizerPostHook", "OptimizerPreHook", "profile_hook_step",
                "register_step_post_hook", "register_step_pre_hook",
            ),
            _HOOKS,
        ),
        **dict.fromkeys(
            (
                "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
                "register_state_dict_post_hook", "register_state_dict_pre_hook",
            ),
            "optimizer.state_dict() and load_state_dict(state), around which you may compute",
        ),
    },
    "module": {
        "add_module": "setattr(module, name, child)",
        "bfloat16": "pg.autocast",
        "compile": "pg.compile(module)",
        "evaluate": "pg.train.Trainer(module, train, validation, …).evaluate()",
        "fit": "pg.train.Trainer(module, train, batch_size=…, epochs=…).fit()",
        "predict": "pg.train.predict(module, x)",
        "cpu": "module.to('cpu')",
        "cuda": "module.to('cuda')",
        "double": "nothing: ggml computes in f32",
        "float": "nothing: parameters are f32",
        "get_buffer": "dict(module.named_buffers())[name]",
        "get_extra_state": "module.register_buffer(name, x), which is saved",
        "get_parameter": "dict(module.named_parameters())[name]",
        "get_submodule": "dict(module.named_modules())[name]",
        "half": "pg.autocast, or models.load(path, keep_types=True)",
        "save": "pg.io.save_safetensors('m.safetensors', module.state_dict()), and"
        " module.load_state_dict(pg.io.open_safetensors('m.safetensors'))",
        "reset_parameters": "nn.init: init.xavier_uniform_(module.weight) and its like",
        "register_backward_hook": "parameter.register_hook",
        "register_full_backward_hook": "parameter.register_hook",
        "register_full_backward_pre_hook": "parameter.register_hook",
        "register_module": "setattr(module, name, child)",
        "register_parameter": "setattr(module, name, nn.Parameter(values))",
        "set_extra_state": "module.register_buffer(name, x), which is saved",
        "set_submodule": "setattr(parent, name, child)",
        "share_memory": "nothing: threads share the model, and ranks average it",
        "to_empty": "module.to(device)",
        "type": "pg.autocast: parameters are f32",
        **dict.fromkeys(
            (
                "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
                "register_state_dict_post_hook", "register_state_dict_pre_hook",
            ),
            _STATE_HOOKS,
        ),
    },
}  # fmt: skip
