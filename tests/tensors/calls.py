# SPDX-License-Identifier: MIT
"""Calls that mean the same in PyTorch: `T` is pyggml or torch, `F` its nn.functional.

x is (2, 3, 4), y is (2, 3, 4), p is positive (2, 3, 4), m is (3, 4), n is (4, 5), v is (4,), u is
(3,), b is (2, 4, 5), images are (2, 3, 6, 6), ids are whole numbers.
"""

from __future__ import annotations

__all__ = ["ALIKE", "MODULES", "OF_MODULES", "STEPS"]

_SAME = (
    "abs exp exp2 expm1 sin cos tan tanh sigmoid relu floor ceil trunc frac sign neg square round"
)
_POSITIVE = "log log2 log10 sqrt rsqrt reciprocal"
_FUNCTIONS = "abs exp exp2 expm1 sin cos tan tanh sigmoid relu floor ceil trunc frac neg round"
_ACTIVATIONS = (
    "relu gelu silu sigmoid tanh softplus elu hardswish hardsigmoid relu6 logsigmoid mish"
    " leaky_relu glu"
)

ALIKE = [
    *(f"x.{name}()" for name in _SAME.split()),
    *(f"p.{name}()" for name in _POSITIVE.split()),
    *(f"T.{name}(x)" for name in _FUNCTIONS.split()),
    *(f"T.{name}(p)" for name in _POSITIVE.split()),
    *(f"F.{name}(x)" for name in _ACTIVATIONS.split()),
    *"x+y|x-y|x*y|x/p|x+1|1-x|2*x|1/p|x**2|p**0.5|-x|x+u[:,None]|x*v|abs(x)".split("|"),
    *"x.add(y)|x.sub(y)|x.mul(y)|x.div(p)|x.pow(3)|x.clamp(-1,0.5)|x.clamp(min=0)".split("|"),
    *"x.clamp(max=0.5)|T.clamp(x,-1,1)|T.pow(p,1.5)|T.lerp(x,y,0.3)|x.lerp(y,0.3)".split("|"),
    *"T.maximum(x,y)|T.minimum(x,y)|x.maximum(y)|x.minimum(y)".split("|"),
    *"(x>0).float()|(x<y).float()|(x>=0.5).float()|(x<=y).float()|(ids==1).float()".split("|"),
    *"(x!=y).float()|x.gt(0).float()|x.lt(0).float()|x.ge(y).float()|x.le(y).float()".split("|"),
    *"x.eq(y).float()|x.ne(y).float()|((x>0)&(y>0)).float()".split("|"),
    "((x>0)|(y>0)).float()",
    *"(~(x>0)).float()|T.where(x>0,x,y)|T.where(x>0,x,0.5)|x.where(x>0,y)".split("|"),
    *"x.masked_fill(x>0,-2.0)|x.tril()|x.triu(1)|T.tril(m,-1)|T.triu(m)".split("|"),
    *"x.sum()|x.sum(1)|x.sum(dim=-1,keepdim=True)|x.sum((0,2))|T.sum(x,0)".split("|"),
    *"x.mean()|x.mean(0)|x.mean(dim=(1,2))|T.mean(x,-1,True)|x.var()|x.var(1)".split("|"),
    *"x.std()|x.std(dim=-1,keepdim=True)|T.var(x,0,correction=0)|T.std(x,1)".split("|"),
    *"x.norm()|x.norm(1)|x.norm(2,dim=1)|x.norm(3,dim=-1,keepdim=True)".split("|"),
    *"x.prod()|x.prod(1)|x.amax()|x.amax(1)|x.amin((0,2))|T.amax(x,0,True)".split("|"),
    *"x.max()|x.min()|x.max(1).values|x.max(dim=-1,keepdim=True)[0]|x.min(0)[0]".split("|"),
    *"x.max(1)[1]|x.min(2).indices|x.argmax()|x.argmax(-1)|x.argmax(1,keepdim=True)".split("|"),
    *"x.argmin(0)|T.argmax(x,2)|(x>-9).all().float()|(x>1.5).any(1).float()".split("|"),
    *"x.softmax(-1)|x.softmax(1)|T.softmax(x,0)|F.softmax(x,-1)|x.log_softmax(-1)".split("|"),
    *"F.log_softmax(x,1)|x.logsumexp(-1)|T.logsumexp(x,1,True)|x.cumsum(-1)".split("|"),
    *"x.cumsum(0)|x.topk(2).values|x.topk(2)[1]|x.topk(2,largest=False)[0]".split("|"),
    *"x.reshape(6,4)|x.reshape((2,-1))|x.view(3,8)|x.flatten()|x.flatten(1)".split("|"),
    *"x.unflatten(2,(2,2))|x.unsqueeze(0)|x.unsqueeze(-1).squeeze(-1)|x[:1].squeeze()".split("|"),
    *"ids+1|1-ids|ids*2|ids[:,None]-places|ids//2|7//(ids+1)|-ids//2|-ids%3|ids/2|ids*0.5".split(
        "|"
    ),
    *"x*ids[:,None]|ids.add(2)|ids.remainder(2)|T.floor_divide(ids,2)|T.remainder(ids,3)".split(
        "|"
    ),
    *"x.reshape(x.size(0),-1)|T.ones(x.size())|x.view(x.size()[:2]+(4,))".split("|"),
    *"x.permute(2,0,1)|x.permute((1,0,2))|x.transpose(0,2)|m.t()|m.T|x.mT".split("|"),
    *"u[:,None].expand(3,4)|u.expand(2,-1)|m.repeat(2,1)|x.flip(0)|x.flip((1,2))".split("|"),
    *"x.split(2,1)[1]|x.split([1,3],-1)[1]|x.chunk(2,dim=2)[0]|x.unbind(1)[2]".split("|"),
    *"x.narrow(1,1,2)|T.cat([x,y])|T.cat([x,y],dim=2)|T.stack([x,y][:1])".split("|"),
    *"T.stack([m,m*2],dim=1)|T.split(x,1)[0]|T.chunk(x,3,1)[1]|T.unbind(x)[1]".split("|"),
    *"T.squeeze(x[:,:1],1)|T.unsqueeze(m,1)|T.flatten(x,0,1)|T.flip(x,(0,))".split("|"),
    *"x[0]|x[-1,1]|x[...,1]|x[:,1:]|x[:,::2]|x[:,None,1]|x[0,:,None]|x[[1,0,1]]".split("|"),
    *"x[:,[0,2]]|x[[0,1],[2,0]]|x[0,[1,2]]|x[:,:,ids]".split("|"),
    *"x.gather(2,places)|T.gather(x,2,places)|x.index_select(1,ids)".split("|"),
    *"m@n|x@n|x@b|T.matmul(x,b)|x.matmul(n)|T.mm(m,n)|m.mm(n)|T.bmm(x,b)|x.bmm(b)".split("|"),
    *"T.mv(m,v)|m.mv(v)|T.dot(v,v*2)|v.dot(v)|T.outer(u,v)|u.outer(v)".split("|"),
    *"T.einsum('bij,bjk->bik',x,b)|T.einsum('bij->j',x)|T.einsum('ij,jk',m,n)".split("|"),
    *"T.einsum('bij,kj->bki',x,m)|T.arange(5)|T.arange(1,2,0.25)|T.linspace(0,1,5)".split("|"),
    *"T.zeros(2,3)|T.ones((2,3))|T.full((2,),7.0)|T.eye(3)|T.zeros_like(x)".split("|"),
    *"T.ones_like(x)|T.full_like(x,2.0)|T.tensor([1,2])|x.clone()|x.detach()".split("|"),
    *"x.float()|x.contiguous()|x.cpu()|T.broadcast_to(u[:,None],(3,4))".split("|"),
    *"F.normalize(x,dim=-1)|F.cosine_similarity(x,y,dim=1)|F.one_hot(ids,4)*1.0".split("|"),
    *"F.embedding(ids,m)|F.pad(x,(1,2))|F.pad(x,(0,1,2,0),value=3.0)".split("|"),
    *"F.gelu(x,approximate='tanh')|F.leaky_relu(x,0.2)|F.linear(x,m)".split("|"),
    *"F.conv1d(x,kernel)|F.conv1d(x,kernel,u,stride=2,padding=1)".split("|"),
    *"F.conv2d(images,filters)|F.conv2d(images,filters,u,padding=1,stride=2)".split("|"),
    *"F.conv2d(images,filters[:,:1],u,groups=3)|F.max_pool2d(images,2)".split("|"),
    *"F.avg_pool2d(images,3,stride=1)|F.adaptive_avg_pool2d(images,2)".split("|"),
    *"F.interpolate(images,(9,4),mode='bilinear')|F.mse_loss(x,y)|F.l1_loss(x,y)".split("|"),
    *"F.smooth_l1_loss(x,y)|F.huber_loss(x,y)|F.mse_loss(x,y,reduction='sum')".split("|"),
    *"F.binary_cross_entropy_with_logits(x,p/4)|F.kl_div(x,p,reduction='batchmean')".split("|"),
    *"F.interpolate(images,9)|F.interpolate(images,scale_factor=2)".split("|"),
    "F.interpolate(images,scale_factor=0.5,mode='bilinear',align_corners=False)",
    "F.interpolate(images,scale_factor=(2,1.5),mode='bilinear',align_corners=True)",
    "F.scaled_dot_product_attention(heads,heads*2,heads-1,attn_mask=T.tril(T.ones(5,5))>0)",
    "F.scaled_dot_product_attention(heads,heads*2,heads-1)",
    "F.scaled_dot_product_attention(heads,heads*2,heads-1,is_causal=True)",
    "F.scaled_dot_product_attention(heads,heads*2,heads-1,scale=0.3)",
    "F.cross_entropy(m,ids)",
    *"T.norm(x)|T.norm(x,1,dim=1)|T.sign(x)|T.square(x)|T.add(x,y)|T.sub(x,y)|T.mul(x,y)".split(
        "|"
    ),
    *"T.div(x,p)|T.clamp(x,min=0)|T.clamp(x,max=0.5)|x.clip(-1,1)|x.clamp_min(0)".split("|"),
    *"x.clamp_max(0.5)|T.roll(x,1)|T.roll(x,1,0)|T.roll(x,shifts=(1,-1),dims=(0,2))".split("|"),
    *"x.std(1,unbiased=False)|x.var(unbiased=False)|T.var(x,0,unbiased=True)".split("|"),
    *"F.softplus(x,beta=2)|F.elu(x,alpha=0.5)|F.glu(p,dim=0)|F.one_hot(ids)*1.0".split("|"),
    "T.einsum('...ij,...jk->...ik',x,b)",
    *"F.dropout(x,0.5,training=False)|F.nll_loss(F.log_softmax(m,-1),ids)".split("|"),
    *"F.binary_cross_entropy(x.sigmoid(),p/4)|F.nll_loss(m,ids,ignore_index=1)".split("|"),
    *"F.layer_norm(x,(4,))|F.layer_norm(x,(4,),v,2*v,1e-3)|F.layer_norm(x,(3,4),m,m)".split("|"),
    *"F.layer_norm(x,x.shape[1:])|F.rms_norm(x,(4,))|F.rms_norm(x,(4,),v,1e-3)".split("|"),
    *"F.rms_norm(x,(3,4),m)|F.group_norm(images,1)".split("|"),
    *"F.batch_norm(images,None,None,u,None,True)|F.group_norm(images,3,u,u)".split("|"),
    "F.batch_norm(images,u.detach(),(u*u).detach(),u,u)",
    "F.batch_norm(x[0].T,u.detach(),(u*u).detach())",
    *"F.conv_transpose2d(images,filters,u,2,1,1)".split("|"),
    *"F.conv_transpose2d(images,filters)|F.cross_entropy(m,ids,(v*v).detach())".split("|"),
    "F.cross_entropy(m,ids,(v*v).detach(),ignore_index=1,reduction='sum')",
    *"T.cumsum(x,dim=1)|T.cumsum(x,0)|T.topk(x,2,dim=1)[0]|x.topk(2,dim=0)[1].float()".split("|"),
    *"T.topk(x,2,1,False)[0]|x.gather(1,T.tensor([[[1],[2],[0],[1]]]))|T.gather(x,2,places[:1])".split(
        "|"
    ),
    *"T.tensor([True,False])*1.0|F.pad(images,(2,1,1,0),mode='reflect')".split("|"),
    *"F.pad(images,(2,1,1,3),mode='replicate')|F.pad(x,(1,2),mode='reflect')".split("|"),
    *"F.pad(x,(1,2),mode='replicate')|F.pad(images,(2,1,1,3),mode='circular')".split("|"),
    *"F.adaptive_avg_pool2d(images,4)|F.adaptive_avg_pool2d(images,(5,8))".split("|"),
    *"F.adaptive_avg_pool2d(images,(None,1))|F.conv2d(images,filters,padding='same')".split("|"),
    *"F.conv2d(images,filters,padding='valid',stride=2)".split("|"),
    *"F.conv2d(images,filters,u,padding='same',dilation=2)".split("|"),
    *"F.conv1d(x,T.cat([kernel,kernel[:,:,:1]],-1),padding='same')".split("|"),
]

# A layer, and what it is called with: outputs and all gradients are compared.
MODULES = [
    ("nn.Linear(4,5)", "x"),
    ("nn.Linear(4,5,bias=False)", "x"),
    ("nn.Embedding(5,4)", "ids"),
    ("nn.LayerNorm(4)", "x"),
    ("nn.LayerNorm(4,eps=1e-3,bias=False)", "x"),
    ("nn.Embedding(5,4,padding_idx=0)", "ids"),
    ("nn.LayerNorm((3,4))", "x"),
    ("nn.LayerNorm((3,4),elementwise_affine=False)", "x"),
    ("nn.RMSNorm(4)", "x"),
    ("nn.RMSNorm(4,eps=1e-5)", "x"),
    ("nn.RMSNorm((3,4))", "x"),
    ("nn.Conv1d(3,2,2,padding=1)", "x"),
    ("nn.Conv2d(3,4,3)", "images"),
    ("nn.Conv2d(3,4,(3,2),stride=2,padding=1)", "images"),
    ("nn.Conv2d(3,3,3,groups=3,bias=False)", "images"),
    ("nn.ConvTranspose2d(3,2,2,stride=2)", "images"),
    ("nn.BatchNorm2d(3)", "images"),
    ("nn.BatchNorm1d(4)", "m"),
    ("nn.BatchNorm2d(3).eval()", "images"),
    ("nn.GroupNorm(3,3)", "images"),
    ("nn.MaxPool2d(2)", "images"),
    ("nn.AvgPool2d(3,stride=1)", "images"),
    ("nn.AdaptiveAvgPool2d((2,3))", "images"),
    ("nn.AdaptiveAvgPool2d(1)", "images"),
    ("nn.Flatten()", "images"),
    ("nn.Unflatten(2,(2,2))", "x"),
    ("nn.Upsample(scale_factor=2)", "images"),
    ("nn.Identity()", "x"),
    ("nn.Conv2d(3,4,3,padding='same')", "images"),
    ("nn.Conv1d(3,4,3,padding='same')", "x"),
    ("nn.AdaptiveAvgPool2d((4,None))", "images"),
    ("nn.Flatten(0,1)", "images"),
    ("nn.Flatten(2)", "images"),
    ("nn.ReLU()", "x"),
    ("nn.ReLU(inplace=True)", "x*1"),
    ("nn.Hardswish()", "x"),
    ("nn.Hardsigmoid()", "x"),
    ("nn.Mish()", "x"),
    ("nn.ReLU6()", "x"),
    ("nn.GELU()", "x"),
    ("nn.GELU(approximate='tanh')", "x"),
    ("nn.SiLU()", "x"),
    ("nn.Tanh()", "x"),
    ("nn.Sigmoid()", "x"),
    ("nn.Softmax(dim=1)", "x"),
    ("nn.LogSoftmax(dim=-1)", "x"),
    ("nn.LeakyReLU(0.2)", "x"),
    ("nn.ELU(0.5)", "x"),
    ("nn.Softplus(beta=2)", "x"),
    ("nn.Dropout(0.5).eval()", "x"),
    ("nn.Sequential(nn.Linear(4,8),nn.ReLU(),nn.Linear(8,2))", "x"),
    ("nn.Sequential(OrderedDict(one=nn.Linear(4,8),act=nn.ReLU(True),two=nn.Linear(8,2)))", "x"),
    ("nn.ModuleList([nn.Linear(4,4),nn.Linear(4,2)])[1]", "x"),
    ("nn.ModuleDict({'a':nn.Linear(4,2)})['a']", "x"),
    ("nn.CrossEntropyLoss()", "m,ids"),
    ("nn.CrossEntropyLoss(label_smoothing=0.1)", "m,ids"),
    ("nn.CrossEntropyLoss(ignore_index=1,reduction='sum')", "m,ids"),
    ("nn.NLLLoss()", "m,ids"),
    ("nn.MSELoss()", "x,y"),
    ("nn.MSELoss(reduction='sum')", "x,y"),
    ("nn.L1Loss()", "x,y"),
    ("nn.SmoothL1Loss()", "x,y"),
    ("nn.HuberLoss()", "x,y"),
    ("nn.BCEWithLogitsLoss()", "x,p/4"),
    ("nn.BCELoss()", "x.sigmoid(),p/4"),
    ("nn.KLDivLoss(reduction='batchmean')", "x,p"),
]

# Of model, a Sequential of Linear, ReLU and Linear: the same text gives the same.
OF_MODULES = [
    *"list(model.state_dict())|[n for n,_ in model.named_parameters()]|len(model)".split("|"),
    *"[n for n,_ in model.named_modules()]|[n for n,_ in model.named_children()]".split("|"),
    *"len(list(model.parameters()))|len(list(model.children()))|model.training".split("|"),
    *"model.eval().training|model.train()[0].training|len(list(model.modules()))".split("|"),
    *"[n for n,_ in model.named_buffers()]|len(list(model.buffers()))".split("|"),
    *"sum(p.numel() for p in model.parameters())|tuple(model[0].weight.shape)".split("|"),
    *"[p.requires_grad for p in model.requires_grad_(False).parameters()]".split("|"),
    *"model.load_state_dict(model.state_dict()).missing_keys|len(model[1:])".split("|"),
    "model.load_state_dict({},strict=False).missing_keys",
    "[type(m).__name__ for m in model.apply(lambda m: None)]",
]

# Three steps of each from the same weights give the same weights.
STEPS = [
    "optim.SGD(model.parameters(),lr=0.1)",
    "optim.SGD(model.parameters(),lr=0.1,momentum=0.9)",
    "optim.SGD(model.parameters(),lr=0.1,weight_decay=0.1)",
    "optim.Adam(model.parameters(),lr=0.01)",
    "optim.Adam(model.parameters(),lr=0.01,betas=(0.8,0.9),eps=1e-6)",
    "optim.AdamW(model.parameters(),lr=0.01,weight_decay=0.1)",
    "optim.RMSprop(model.parameters(),lr=0.01)",
    "optim.Adagrad(model.parameters(),lr=0.1)",
]
