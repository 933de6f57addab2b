# SPDX-License-Identifier: MIT
"""Calls that mean the same in PyTorch: `T` is pyggml or torch, `F` its nn.functional.

x is (2, 3, 4), y is (2, 3, 4), p is positive (2, 3, 4), m is (3, 4), n is (4, 5), v is (4,), u is
(3,), b is (2, 4, 5), images are (2, 3, 6, 6), ids are whole numbers, hidden is (2, 3) booleans.
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

# Of attention, with L for a causal mask.
_MASKS = """L|T.triu(T.ones(5,5)>0,-1)|~T.triu(T.ones(5,5)>0,diagonal=1)|T.cat([L[:2],L[2:]])
T.stack([L,L.flip(0)])|L.flip((0,1))|T.roll(L,1,0)|F.pad(T.tril(T.ones(5,4)>0),(0,1))
F.pad(T.tril(T.ones(4,4)>0),(1,0,1,0),value=True)|L.gather(1,T.tensor([[0,1,2,4,3]]*5))
L.index_select(1,T.tensor([0,2,1,3,4]))|L[[4,3,0,1,2]]|L[T.tensor([4,0,1,3,2])]|L.T.flip(0)
L[:1].repeat_interleave(5,0)|L[:1].repeat(5,1)|L[:1].expand(5,5)|T.tile(L[:1],(5,1))
T.where(L,L,L.flip(0))|T.where(L.flip(0),L,True)|L*L.flip((0,1))|L+L.flip(0)|L.__or__(L.flip(1))
L&(T.ones(5,5)>0)|L.masked_fill(L.flip(0),True)|T.tensor([[True]*5]*5).tril()|L.clone()
L.float()|L*1.0|L.to(T.ones(1).dtype)|L.float().masked_fill(L==0,float('-inf'))
L.unsqueeze(0)|L.reshape(1,5,5)|L.permute(1,0)+L|T.maximum(L,L.flip(0))|L.sort(1)[0]|T.diag(L[4])
L.repeat(2,2)[2:7,2:7]+L|L.index_select(0,T.tensor([1,1,2,3,4]))*L.unbind()[4]"""

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
    *"((x>0)+(y>0)).float()|((x>0)*(y>0)).float()|((x>0)+(y>0)).sum(1)|(x>0)*1.0+(y>0)".split("|"),
    *"(x>0).float()+(y>0).float()|(x>0)+1|(x>0)*x|x.where((x>0)+(y>0),y)".split("|"),
    *"T.logical_not(T.tensor([2.0,0.0,-1.0,0.5])).float()|T.logical_not(x*0).float()".split("|"),
    *"T.logical_and(x,x*0).float()|T.logical_or(-x,x*0).float()|x.logical_and(y).float()".split(
        "|"
    ),
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
    *"u[:,None].expand(3,4)|u.expand(2,-1)|m.repeat(2,1)|u.repeat(2)|u.permute(0)|x.flip(0)|x.flip((1,2))".split(
        "|"
    ),
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
    *(
        "F.scaled_dot_product_attention(heads,heads*2,heads-1,attn_mask="
        + mask.replace("L", "T.tril(T.ones(5,5)>0)")
        + ")"
        for line in _MASKS.split("\n")
        for mask in line.split("|")
    ),
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
    *"F.conv_transpose1d(x,kernel,u,2,1,1)|F.conv1d(x,kernel[:,:1],u,groups=3)".split("|"),
    *"F.conv2d(images,filters[:,:1].repeat(2,1,1,1),groups=3)|F.pad(x,(-1,2,1,-1),value=3.0)".split(
        "|"
    ),
    *"F.conv2d(images[:,[0,1,2,0]],filters[:2,:2],padding=1,groups=2)".split("|"),
    *"F.max_pool2d(images,4,ceil_mode=True)|F.avg_pool2d(images,4,3,1,True,False)".split("|"),
    *"F.avg_pool2d(images,3,2,1,True)|F.avg_pool2d(images,2,divisor_override=3)".split("|"),
    *"F.max_pool1d(x,3,ceil_mode=True)|F.avg_pool1d(x,3,2,1,True,False)".split("|"),
    "F.embedding(ids,m,padding_idx=1)",
    "F.scaled_dot_product_attention(T.cat([heads,heads*2],1),heads,heads,enable_gqa=True)",
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
    *"T.log1p(p)|x.log1p()|T.sinh(x)|x.cosh()|T.addcmul(x,y,p,value=0.5)|x.addcdiv(y,p)".split("|"),
    *"T.nan_to_num(x.log(),nan=3.0)|T.nan_to_num(x.detach()/0,posinf=7,neginf=-3)".split("|"),
    *"T.isclose(x,x+1e-9).float()|T.logical_xor(x>0,y>0).float()|x.count_nonzero()".split("|"),
    *"T.count_nonzero(x,1)|T.nansum(x)|x.nanmean(1)|(x>0).logical_and(y>0).float()".split("|"),
    *"T.addmm(v[:1],m,m.T)|m.addmm(m,n[:,:4],beta=0.5,alpha=2)|T.baddbmm(v[:1],x,b)".split("|"),
    *"T.tensordot(x,b,dims=([0,2],[0,1]))|T.tensordot(m,n,1)|T.inner(x,m)|u.inner(u)".split("|"),
    *"T.diagonal(m,1)|x.diagonal(-1,1,2)|T.diag(u)|T.diag(u,1)|T.diag(m,-1)|T.trace(m)".split("|"),
    *"T.cdist(x,y)|T.cdist(m,m*2,p=1)|T.concat([x,y],1)|T.concatenate([x,y])|T.hstack([x,y])".split(
        "|"
    ),
    *"T.hstack([u,v])|T.vstack([u,u*2])|T.vstack([x,y])|x.ravel()|T.swapaxes(x,0,2)".split("|"),
    *"x.swapdims(1,2)|T.movedim(x,0,-1)|x.movedim((0,1),(2,0))|T.moveaxis(x,2,0)".split("|"),
    *"T.select(x,1,-1)|x.select(0,1)|T.broadcast_tensors(x,v)[1]".split("|"),
    "T.meshgrid(u,v,indexing='ij')[1]",
    *"T.meshgrid(u,v,indexing='xy')[0]|T.repeat_interleave(x,2,1)|u.repeat_interleave(3)".split(
        "|"
    ),
    *"m.repeat_interleave(T.tensor([1,0,2]),0)|T.sort(x)[0]|x.sort(1,descending=True).values".split(
        "|"
    ),
    *"x.sort(0).indices|T.argsort(x,1)|x.argsort(descending=True)|T.std_mean(x,1)[0]".split("|"),
    *"T.var_mean(x,0,correction=0)[1]|x.expand_as(y)|m.reshape_as(m.T)|m.view_as(m)".split("|"),
    *"u[:,None].expand_as(m)|ids.type_as(x)".split("|"),
    *"F.hardtanh(x)|F.hardtanh(x,-0.5,1.5)|F.hardshrink(x)|F.softshrink(x,0.4)".split("|"),
    *"F.tanhshrink(x)|2**x|0.5**x".split("|"),
    *"F.softsign(x)|F.softmin(x,1)|F.threshold(x,0.5,-2.0)|F.selu(x)|F.celu(x,0.7)".split("|"),
    *"F.prelu(x,u)|F.prelu(x,v[:1])|F.max_pool1d(x,2)|F.avg_pool1d(x,2,1,1)".split("|"),
    *"F.adaptive_avg_pool1d(x,3)|F.dropout1d(x,0.5,False)|F.dropout2d(images,0.5,False)".split("|"),
    *"F.instance_norm(images)|F.instance_norm(x,weight=u,bias=u)|F.pairwise_distance(x,y)".split(
        "|"
    ),
    *"F.pixel_unshuffle(images,2)|F.pixel_shuffle(T.cat([images]*4,1),2)".split("|"),
    *"F.margin_ranking_loss(x,y,p.sign(),0.5)|F.hinge_embedding_loss(x,y.sign())".split("|"),
    *"F.soft_margin_loss(x,y.detach().sign())|F.triplet_margin_loss(m,m*2,m-1)".split("|"),
    "F.triplet_margin_loss(x,y,x-1,margin=0.5,p=1,swap=True,reduction='none')",
    *"F.multilabel_soft_margin_loss(m,(m>0)*1.0)|F.poisson_nll_loss(x,p)".split("|"),
    "F.poisson_nll_loss(p,p*2,log_input=False,full=True)",
    "F.gaussian_nll_loss(x,y,p,full=True)",
    *"F.conv1d(x,T.cat([kernel,kernel[:,:,:1]],-1),padding='same')".split("|"),
    *"F.batch_norm(x,None,None,u,None,True)|F.group_norm(x,3,u,u)|F.group_norm(m,2)".split("|"),
    # Names of NumPy's, and PyTorch's own.
    *"x.sum(axis=1)|T.mean(x,axis=(0,2),keepdims=True)|x.argmax(axis=-1,keepdims=True)".split("|"),
    *"T.softmax(x,axis=1)|T.cat([x,y],axis=2)|T.flip(x,dims=(1,))|T.mul(input=x,other=y)".split(
        "|"
    ),
    *"F.relu(input=x,inplace=False)|F.mse_loss(input=x,target=y)|T.mm(m,mat2=n)".split("|"),
    *"x.unsqueeze(axis=0)|T.std(x,axis=1,keepdims=True)|T.full((2,),fill_value=7.0)".split("|"),
    *"T.cat((ids,x[0].argmax(1)))|F.embedding(T.cat((ids,x[0].argmax(1)))[None,1:],n)".split("|"),
    *"F.cross_entropy(input=m,target=ids)|F.cosine_similarity(x1=x,x2=y,dim=2)".split("|"),
    *"T.addmm(v[:1],mat1=m,mat2=m.T)".split("|"),
    *"x.permute(dims=(2,0,1))|x.flip(dims=(0,2))|x.reshape(shape=(2,-1))|x.view(size=(2,-1))".split(
        "|"
    ),
    *"T.zeros(size=(2,3))|T.full(size=(2,),fill_value=7.0)|T.tile(x,dims=(2,1,1))".split("|"),
    *"T.where(condition=x>0,input=x,other=y)|T.permute(x,dims=(1,0,2))".split("|"),
    *"T.outer(u,vec2=v)|T.lerp(x,end=y,weight=0.3)|F.pixel_shuffle(images,1)".split("|"),
    *"T.stack((ids,ids*2)).float()|(x==True).float()|(hidden==False).float()".split("|"),
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
    ("nn.ConvTranspose1d(3,4,3,2,1,1)", "x"),
    ("nn.Conv2d(3,6,3,groups=3)", "images"),
    ("nn.Conv1d(3,3,2,groups=3)", "x"),
    ("nn.MaxPool2d(4,ceil_mode=True)", "images"),
    ("nn.AvgPool2d(4,3,1,True,False)", "images"),
    ("nn.AvgPool2d(3,divisor_override=2)", "images"),
    ("nn.MaxPool1d(3,ceil_mode=True)", "x"),
    ("nn.AvgPool1d(3,2,1,True,False)", "x"),
    ("nn.BatchNorm2d(3,track_running_stats=False).eval()", "images"),
    ("nn.BatchNorm2d(3)", "images"),
    ("nn.BatchNorm1d(4)", "m"),
    ("nn.BatchNorm1d(3)", "x"),
    ("nn.BatchNorm1d(3).eval()", "x"),
    ("nn.BatchNorm2d(3).eval()", "images"),
    ("nn.GroupNorm(3,3)", "images"),
    ("nn.GroupNorm(1,3)", "x"),
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
    ("nn.Hardtanh()", "x"),
    ("nn.Hardshrink(0.4)", "x"),
    ("nn.Softshrink()", "x"),
    ("nn.Threshold(0.5,2.0)", "x"),
    ("nn.PReLU()", "x"),
    ("nn.PReLU(3)", "images"),
    ("nn.SELU()", "x"),
    ("nn.CELU(0.7)", "x"),
    ("nn.GLU()", "x"),
    ("nn.LogSigmoid()", "x"),
    ("nn.Softsign()", "x"),
    ("nn.Tanhshrink()", "x"),
    ("nn.Softmin(dim=1)", "x"),
    ("nn.ZeroPad1d(1)", "x"),
    ("nn.ZeroPad2d((1,2,0,1))", "images"),
    ("nn.ConstantPad1d(2,0.5)", "x"),
    ("nn.ConstantPad2d(1,0.5)", "images"),
    ("nn.ReflectionPad1d(2)", "x"),
    ("nn.ReflectionPad2d((1,2,0,1))", "images"),
    ("nn.ReplicationPad1d((2,1))", "x"),
    ("nn.ReplicationPad2d(1)", "images"),
    ("nn.CircularPad1d(1)", "x"),
    ("nn.CircularPad2d((1,2,3,1))", "images"),
    ("nn.MaxPool1d(2,padding=1)", "x"),
    ("nn.AvgPool1d(3,1)", "x"),
    ("nn.AdaptiveAvgPool1d(3)", "x"),
    ("nn.Dropout1d().eval()", "x"),
    ("nn.Dropout2d().eval()", "images"),
    ("nn.InstanceNorm1d(3)", "x"),
    ("nn.InstanceNorm2d(3,affine=True)", "images"),
    ("nn.PixelShuffle(1)", "images"),
    ("nn.PixelUnshuffle(3)", "images"),
    ("nn.UpsamplingNearest2d(scale_factor=2)", "images"),
    ("nn.UpsamplingBilinear2d(9)", "images"),
    ("nn.PairwiseDistance()", "x,y"),
    ("nn.CosineSimilarity(dim=2)", "x,y"),
    ("nn.MarginRankingLoss(0.2)", "x,y,p.sign()"),
    ("nn.HingeEmbeddingLoss()", "x,y.sign()"),
    ("nn.SoftMarginLoss()", "x,y.detach().sign()"),
    ("nn.TripletMarginLoss(swap=True)", "m,m*2,m-1"),
    ("nn.MultiLabelSoftMarginLoss()", "m,(m>0)*1.0"),
    ("nn.PoissonNLLLoss()", "x,p"),
    ("nn.GaussianNLLLoss()", "x,y,p"),
    ("nn.TransformerEncoder(nn.TransformerEncoderLayer(4,2,8,0.0,batch_first=True),2)", "x"),
    ("nn.TransformerDecoder(nn.TransformerDecoderLayer(4,2,8,0.0,batch_first=True),2)", "x,y"),
    (
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(4,2,8,0.0,batch_first=True),2)",
        "x,None,hidden",
    ),
    (
        "nn.TransformerDecoder(nn.TransformerDecoderLayer(4,2,8,0.0,batch_first=True),2)",
        "x,y,tgt_key_padding_mask=hidden,memory_key_padding_mask=hidden",
    ),
    ("nn.TransformerEncoderLayer(4,2,8,0.0,batch_first=True)", "x,src_key_padding_mask=hidden"),
    (
        "nn.TransformerEncoderLayer(4,2,8,0.0,batch_first=True)",
        "x,m[:,:3].detach(),y[:,:,0].detach()",
    ),
    (
        "nn.TransformerDecoderLayer(4,2,8,0.0,batch_first=True)",
        "x,y,memory_key_padding_mask=hidden",
    ),
    ("nn.MultiheadAttention(4,2,batch_first=True)", "x,y,y"),
    ("nn.MultiheadAttention(4,2,batch_first=True)", "x,y,y,hidden"),
    ("nn.MultiheadAttention(4,2,batch_first=True)", "x,y,y,hidden,need_weights=False"),
    (
        "nn.MultiheadAttention(4,2,batch_first=True)",
        "x,y,y,y[:,:,0].detach(),True,m[:,:3].detach()",
    ),
    (
        "nn.MultiheadAttention(4,2,batch_first=True)",
        "x,y,y,attn_mask=b[:,:3,:3].detach()[[0,1,0,1]]",
    ),
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
    "optim.AdamW([{'params':model[0].parameters(),'lr':0.05},{'params':[model[2].bias]}],lr=0.01)",
    "optim.RMSprop(model.parameters(),lr=0.01)",
    "optim.Adagrad(model.parameters(),lr=0.1)",
]
