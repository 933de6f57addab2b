# SPDX-License-Identifier: MIT
"""Names of torch.nn and torch.nn.functional that are absent, and what serves instead."""

from __future__ import annotations

__all__ = ["FUNCTIONS", "LAYERS", "RECURRENT"]

RECURRENT = (
    "nn.MultiheadAttention or nn.Conv1d: ggml has no such op, and a graph with nodes for each time"
    " step is slow"
)
_SHUFFLED = "x.reshape(N, g, C // g, H * W).transpose(1, 2).reshape(x.shape)"
_PATCHES = "ops.im2col(x, kernel).flatten(1, 2).transpose(1, 2)"
_REGULAR = "nn.MaxPool2d, whose windows do not move at random"
_MARGINS = "((F.relu(1 + x - x.gather(1, y[:, None])).sum(1) - 1) / x.size(1)).mean()"
_UNPOOLED = "nn.Upsample, as ggml has no op that puts elements back to their places"
_NO_CTC = "F.cross_entropy of aligned targets: ggml has no such op"
_ALPHA = "nn.Dropout, whose zeros change the mean"
_GRID = "F.interpolate: ggml has no op that samples at any places"
_RANDOM_SLOPE = "nn.LeakyReLU((lower + upper) / 2), which it is in evaluation"

# Of Keras.
_KERAS = {
    "AveragePooling1D": "nn.AvgPool1d",
    "AveragePooling2D": "nn.AvgPool2d",
    "BatchNormalization": "nn.BatchNorm1d or nn.BatchNorm2d",
    "Concatenate": "pg.cat(tensors, 1) in forward",
    "Dense": "nn.Linear(in_features, out_features)",
    "GlobalAveragePooling2D": "nn.GlobalAvgPool2d()",
    "GroupNormalization": "nn.GroupNorm",
    "Input": "nothing: layers are told their input's width",
    "LayerNormalization": "nn.LayerNorm",
    "Rescaling": "x * scale in forward",
}

LAYERS = {
    **_KERAS,
    **dict.fromkeys(("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "RNNBase"), RECURRENT),
    "RNNCellBase": RECURRENT,
    "AdaptiveLogSoftmaxWithLoss": "F.linear_cross_entropy, which holds parts of the logits",
    "AdaptiveMaxPool1d": "nn.MaxPool1d, with windows that divide the sequence",
    "AdaptiveMaxPool2d": "nn.MaxPool2d, with windows that divide the image",
    "AlphaDropout": _ALPHA,
    "BatchNorm3d": "nn.BatchNorm2d of x.reshape(N, C, D, H * W)",
    "Bilinear": "nn.Linear of (a[:, :, None] * b[:, None]).flatten(1)",
    "Buffer": "module.register_buffer(name, x)",
    "CTCLoss": _NO_CTC,
    "ChannelShuffle": _SHUFFLED,
    "Container": "nn.Module",
    "Conv3d": "ops.conv_3d",
    "CrossMapLRN2d": "nn.BatchNorm2d: ggml has no sum over neighbouring channels",
    "DataParallel": "train.Trainer(distributed='auto'), or pg.distributed",
    "EmbeddingBag": "nn.Embedding(n, d)(ids).mean(dim=1)",
    "FeatureAlphaDropout": _ALPHA,
    "Fold": "F.conv_transpose2d, with a weight of ones and zeros",
    "FractionalMaxPool2d": _REGULAR,
    "LinearCrossEntropyLoss": "F.linear_cross_entropy",
    "LinearCrossEntropyOptions": "F.linear_cross_entropy",
    "LPPool1d": "(nn.AvgPool1d(k)(x ** p) * k) ** (1 / p)",
    "LPPool2d": "(nn.AvgPool2d(k)(x ** p) * k * k) ** (1 / p)",
    "LocalResponseNorm": "nn.BatchNorm2d: ggml has no sum over neighbouring channels",
    "MaxUnpool1d": _UNPOOLED,
    "MaxUnpool2d": _UNPOOLED,
    "MultiLabelMarginLoss": "nn.MultiLabelSoftMarginLoss, or a sum of F.relu(1 - differences)",
    "MultiMarginLoss": _MARGINS,
    "NLLLoss2d": "nn.NLLLoss",
    "ParameterDict": "setattr(self, name, nn.Parameter(values)) of each: attributes are found by"
    " themselves",
    "ParameterList": "setattr(self, f'weight{i}', nn.Parameter(values)) of each: attributes are"
    " found by themselves",
    "RReLU": _RANDOM_SLOPE,
    "Softmax2d": "nn.Softmax(dim=1)",
    "SyncBatchNorm": "nn.BatchNorm2d, whose statistics are those of a rank's own rows",
    "Transformer": "nn.TransformerEncoder and nn.TransformerDecoder",
    "TripletMarginWithDistanceLoss": "F.relu(distance(a, p) - distance(a, n) + margin).mean()",
    "Unfold": _PATCHES,
    "UninitializedBuffer": "module.register_buffer(name, x)",
    "UninitializedParameter": "nn.Parameter(values)",
    "parallel": "pg.distributed",
    "utils": "optimizer.step(clip=1.0), which clips the norm of all gradients; F.pad and pg.stack"
    " for rnn.pad_sequence",
}

FUNCTIONS = {
    "adaptive_max_pool1d": "F.max_pool1d, with windows that divide the sequence",
    "adaptive_max_pool2d": "F.max_pool2d, with windows that divide the image",
    "adaptive_max_pool1d_with_indices": "F.max_pool1d, without places",
    "adaptive_max_pool2d_with_indices": "F.max_pool2d, without places",
    "affine_grid": _GRID,
    "alpha_dropout": "F.dropout, whose zeros change the mean",
    "bilinear": "F.linear of (a[:, :, None] * b[:, None]).flatten(1)",
    "channel_shuffle": _SHUFFLED,
    "conv3d": "ops.conv_3d",
    "conv_tbc": "F.conv1d of x.permute(1, 2, 0)",
    "ctc_loss": _NO_CTC,
    "embedding_bag": "F.embedding(ids, weight).mean(dim=1)",
    "feature_alpha_dropout": "F.dropout, whose zeros change the mean",
    "fold": "F.conv_transpose2d, with a weight of ones and zeros",
    "fractional_max_pool2d": _REGULAR,
    "fractional_max_pool2d_with_indices": _REGULAR,
    "grid_sample": _GRID,
    "grouped_mm": "pg.bmm(a, b), or nn.MixtureOfExperts",
    "gumbel_softmax": "F.softmax((x - pg.log(-pg.log(pg.rand_like(x)))) / tau, -1)",
    "local_response_norm": "F.batch_norm: ggml has no sum over neighbouring channels",
    "lp_pool1d": "(F.avg_pool1d(x ** p, k) * k) ** (1 / p)",
    "lp_pool2d": "(F.avg_pool2d(x ** p, k) * k * k) ** (1 / p)",
    "max_pool1d_with_indices": "F.max_pool1d, without places",
    "max_pool2d_with_indices": "F.max_pool2d, without places",
    "max_unpool1d": _UNPOOLED,
    "max_unpool2d": _UNPOOLED,
    "multi_head_attention_forward": "F.scaled_dot_product_attention, or nn.MultiheadAttention",
    "multi_margin_loss": _MARGINS,
    "multilabel_margin_loss": "F.multilabel_soft_margin_loss, or a sum of F.relu(1 - differences)",
    "rrelu": "F.leaky_relu(x, (lower + upper) / 2), which it is in evaluation",
    "scaled_grouped_mm": "pg.bmm(a, b), or nn.MixtureOfExperts",
    "scaled_mm": "a @ b inside of pg.autocast",
    "triplet_margin_with_distance_loss": "F.relu(distance(a, p) - distance(a, n) + margin).mean()",
    "unfold": _PATCHES,
    "upsample": "F.interpolate(x, size)",
    "upsample_bilinear": "F.interpolate(x, size, mode='bilinear', align_corners=True)",
    "upsample_nearest": "F.interpolate(x, size)",
}
