"""The networks that tools/record_dl.py trains, with every layer named as in the literature.

Whatever makes a tensor is a leaf module: the recorder names tensors after the module that made
them.
"""

from collections import OrderedDict

import torch
from torch import nn


class Add(nn.Module):
    """Adds to the first tensor in place, as in residual networks."""

    def forward(self, a, b):
        return a.add_(b)


class Sum(nn.Module):
    """Adds into a new tensor, because the first is needed again."""

    def forward(self, a, b):
        return a + b


class Concat(nn.Module):
    def forward(self, *parts):
        return torch.cat(parts, 1)


def relu():
    return nn.ReLU(inplace=True)


def alexnet():
    """Krizhevsky et al. 2012, in one tower, as in Caffe's reference model."""
    return nn.Sequential(OrderedDict([
        ("conv1", nn.Conv2d(3, 96, 11, 4)), ("relu1", relu()),
        ("norm1", nn.LocalResponseNorm(5)), ("pool1", nn.MaxPool2d(3, 2)),
        ("conv2", nn.Conv2d(96, 256, 5, padding=2, groups=2)), ("relu2", relu()),
        ("norm2", nn.LocalResponseNorm(5)), ("pool2", nn.MaxPool2d(3, 2)),
        ("conv3", nn.Conv2d(256, 384, 3, padding=1)), ("relu3", relu()),
        ("conv4", nn.Conv2d(384, 384, 3, padding=1, groups=2)), ("relu4", relu()),
        ("conv5", nn.Conv2d(384, 256, 3, padding=1, groups=2)), ("relu5", relu()),
        ("pool5", nn.MaxPool2d(3, 2)), ("flatten", nn.Flatten()),
        ("fc6", nn.Linear(256 * 6 * 6, 4096)), ("relu6", relu()), ("drop6", nn.Dropout()),
        ("fc7", nn.Linear(4096, 4096)), ("relu7", relu()), ("drop7", nn.Dropout()),
        ("fc8", nn.Linear(4096, 1000)),
    ]))


def vgg16():
    """Simonyan and Zisserman 2014, configuration D."""
    layers, channels = OrderedDict(), 3
    for stage, (width, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for conv in range(1, depth + 1):
            layers[f"conv{stage}_{conv}"] = nn.Conv2d(channels, width, 3, padding=1)
            layers[f"relu{stage}_{conv}"] = relu()
            channels = width
        layers[f"pool{stage}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    for number, (inputs, outputs) in enumerate([(512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)], 6):
        layers[f"fc{number}"] = nn.Linear(inputs, outputs)
        if number < 8:
            layers[f"relu{number}"], layers[f"drop{number}"] = relu(), nn.Dropout()
    return nn.Sequential(layers)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1, self.relu1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), relu()
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(width), relu()
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            conv = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(OrderedDict([("conv", conv), ("bn", nn.BatchNorm2d(4 * width))]))
        self.add, self.relu3 = Add(), relu()

    def forward(self, x):
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.relu2(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu3(self.add(y, self.downsample(x) if self.downsample else x))


def resnet50():
    """He et al. 2015, with the stride in the 3x3 convolution."""
    layers = OrderedDict([
        ("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False)), ("bn1", nn.BatchNorm2d(64)), ("relu", relu()),
        ("maxpool", nn.MaxPool2d(3, 2, 1)),
    ])
    inputs = 64
    for stage, (width, depth) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 1):
        blocks = []
        for block in range(depth):
            blocks.append(Bottleneck(inputs, width, 2 if block == 0 and stage > 1 else 1))
            inputs = 4 * width
        layers[f"layer{stage}"] = nn.Sequential(*blocks)
    layers["avgpool"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["fc"] = nn.Linear(2048, 1000)
    return nn.Sequential(layers)


class Fire(nn.Module):
    def __init__(self, inputs, squeeze, expand):
        super().__init__()
        self.squeeze, self.relu1 = nn.Conv2d(inputs, squeeze, 1), relu()
        self.expand1x1, self.relu2 = nn.Conv2d(squeeze, expand, 1), relu()
        self.expand3x3, self.relu3 = nn.Conv2d(squeeze, expand, 3, padding=1), relu()
        self.concat = Concat()

    def forward(self, x):
        x = self.relu1(self.squeeze(x))
        return self.concat(self.relu2(self.expand1x1(x)), self.relu3(self.expand3x3(x)))


def squeezenet():
    """Iandola et al. 2016, version 1.1."""
    layers = OrderedDict([("conv1", nn.Conv2d(3, 64, 3, 2)), ("relu1", relu()), ("pool1", nn.MaxPool2d(3, 2))])
    inputs = 64
    for number, (squeeze, expand) in enumerate(
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)], 2
    ):
        layers[f"fire{number}"] = Fire(inputs, squeeze, expand)
        inputs = 2 * expand
        if number in (3, 5):
            layers[f"pool{number}"] = nn.MaxPool2d(3, 2)
    layers["drop9"], layers["conv10"], layers["relu10"] = nn.Dropout(), nn.Conv2d(512, 1000, 1), relu()
    layers["avgpool"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(layers)


def unit(inputs, outputs, size, stride=1):
    """A convolution with batch normalisation."""
    return nn.Sequential(OrderedDict([
        ("conv", nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)),
        ("bn", nn.BatchNorm2d(outputs)), ("relu", relu()),
    ]))


class Inception(nn.Module):
    """One block; `one` of 0 is a block that halves the picture and passes its input through a
    pool."""

    def __init__(self, inputs, one, three, double, pool, project):
        super().__init__()
        stride = 1 if one else 2
        branches = OrderedDict()
        if one:
            branches["1x1"] = [("1x1", unit(inputs, one, 1))]
        branches["3x3"] = [("3x3_reduce", unit(inputs, three[0], 1)), ("3x3", unit(*three, 3, stride))]
        branches["double"] = [
            ("double3x3_reduce", unit(inputs, double[0], 1)),
            ("double3x3_1", unit(*double, 3)), ("double3x3_2", unit(double[1], double[1], 3, stride)),
        ]
        kind = nn.AvgPool2d(3, stride, 1) if pool == "avg" else nn.MaxPool2d(3, stride, 1)
        branches["pool"] = [("pool", kind)] + ([("pool_proj", unit(inputs, project, 1))] if project else [])
        self.branches = [[name for name, _ in branch] for branch in branches.values()]
        for branch in branches.values():
            for name, module in branch:
                self.add_module(name, module)
        self.concat = Concat()
        self.outputs = one + three[1] + double[1] + (project or inputs)

    def forward(self, x):
        parts = []
        for branch in self.branches:
            y = x
            for name in branch:
                y = self.get_submodule(name)(y)
            parts.append(y)
        return self.concat(*parts)


def inception_v2():
    """Ioffe and Szegedy 2015: Inception with batch normalisation, the table of its appendix."""
    layers = OrderedDict([
        ("conv1", unit(3, 64, 7, 2)), ("pool1", nn.MaxPool2d(3, 2, 1)),
        ("conv2_reduce", unit(64, 64, 1)), ("conv2", unit(64, 192, 3)), ("pool2", nn.MaxPool2d(3, 2, 1)),
    ])
    inputs = 192
    for name, *shape in [
        ("3a", 64, (64, 64), (64, 96), "avg", 32), ("3b", 64, (64, 96), (64, 96), "avg", 64),
        ("3c", 0, (128, 160), (64, 96), "max", 0), ("4a", 224, (64, 96), (96, 128), "avg", 128),
        ("4b", 192, (96, 128), (96, 128), "avg", 128), ("4c", 160, (128, 160), (128, 160), "avg", 96),
        ("4d", 96, (128, 192), (160, 192), "avg", 96), ("4e", 0, (128, 192), (192, 256), "max", 0),
        ("5a", 352, (192, 320), (160, 224), "avg", 128), ("5b", 352, (192, 320), (192, 224), "max", 128),
    ]:
        layers[f"inception_{name}"] = block = Inception(inputs, *shape)
        inputs = block.outputs
    layers["avgpool"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["fc"] = nn.Linear(inputs, 1000)
    return nn.Sequential(layers)


class BigLstm(nn.Module):
    """Jozefowicz et al. 2016: two layers of 8192 with a projection to 1024; here with a vocabulary
    of 10000."""

    vocabulary = 10000

    def __init__(self, width=8192, projection=1024):
        super().__init__()
        self.embedding = nn.Embedding(self.vocabulary, projection)
        self.lstm1 = nn.LSTM(projection, width, proj_size=projection, batch_first=True)
        self.lstm2 = nn.LSTM(projection, width, proj_size=projection, batch_first=True)
        self.softmax = nn.Linear(projection, self.vocabulary)

    def forward(self, tokens):
        x, _ = self.lstm1(self.embedding(tokens))
        x, _ = self.lstm2(x)
        return self.softmax(x).flatten(0, 1)


class Stack(nn.Module):
    def forward(self, *parts):
        return torch.stack(parts, 1)


class LstmUnit(nn.Module):
    """Computes the next cell and hidden state from a step's gate inputs and the previous cell."""

    def forward(self, gates, cell):
        keep, take, give, new = gates.chunk(4, 1)
        cell = keep.sigmoid() * cell + take.sigmoid() * new.tanh()
        return cell, give.sigmoid() * cell.tanh()


class UnrolledLstm(nn.Module):
    """An LSTM with a projection, unrolled step by step into separate layers, as in Caffe."""

    def __init__(self, inputs, width, projection):
        super().__init__()
        self.width, self.projection = width, projection
        self.input, self.recurrent = nn.Linear(inputs, 4 * width), nn.Linear(projection, 4 * width, bias=False)
        self.gates, self.unit, self.project = Sum(), LstmUnit(), nn.Linear(width, projection, bias=False)
        self.stack = Stack()

    def forward(self, x):
        inputs, outputs = self.input(x), []
        cell, hidden = x.new_zeros(len(x), self.width), x.new_zeros(len(x), self.projection)
        for step in inputs.unbind(1):
            cell, wide = self.unit(self.gates(step, self.recurrent(hidden)), cell)
            hidden = self.project(wide)
            outputs.append(hidden)
        return self.stack(*outputs)


class UnrolledBigLstm(nn.Module):
    """BigLstm of unrolled layers."""

    vocabulary = BigLstm.vocabulary

    def __init__(self, width=8192, projection=1024):
        super().__init__()
        self.embedding = nn.Embedding(self.vocabulary, projection)
        self.lstm1 = UnrolledLstm(projection, width, projection)
        self.lstm2 = UnrolledLstm(projection, width, projection)
        self.softmax = nn.Linear(projection, self.vocabulary)

    def forward(self, tokens):
        return self.softmax(self.lstm2(self.lstm1(self.embedding(tokens)))).flatten(0, 1)


class Attention(nn.Module):
    """Attention between the two weight products: queries, keys and values are side by side in one
    tensor."""

    def __init__(self, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, qkv):
        batch, length, width = qkv.shape
        parts = qkv.view(batch, length, 3, self.heads, width // 3 // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return y.transpose(1, 2).reshape(batch, length, width // 3)


class Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.ln1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.attention, self.proj, self.add1 = Attention(heads, causal), nn.Linear(width, width), Sum()
        self.ln2, self.fc1, self.gelu = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU()
        self.fc2, self.add2 = nn.Linear(4 * width, width), Sum()

    def forward(self, x):
        x = self.add1(x, self.proj(self.attention(self.qkv(self.ln1(x)))))
        return self.add2(x, self.fc2(self.gelu(self.fc1(self.ln2(x)))))


class Patches(nn.Module):
    """Splits the picture into patches, prepends a class token and adds positions."""

    def __init__(self, width, patches):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 16, 16)
        self.place = Place(width, patches)

    def forward(self, images):
        return self.place(self.conv(images))


class Place(nn.Module):
    def __init__(self, width, patches):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position


class First(nn.Module):
    """Selects the class token of the last layer."""

    def forward(self, x):
        return x[:, 0].contiguous()


def vit_b16():
    """Dosovitskiy et al. 2020, the base model with patches of 16."""
    layers = OrderedDict([("patch", Patches(768, 196))])
    for index in range(12):
        layers[f"block{index}"] = Block(768, 12, causal=False)
    layers["ln"], layers["first"], layers["head"] = nn.LayerNorm(768), First(), nn.Linear(768, 1000)
    return nn.Sequential(layers)


class Embedding(nn.Module):
    def __init__(self, vocabulary, width, length):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.add = Sum()

    def forward(self, tokens):
        return self.add(self.token(tokens), self.position(torch.arange(tokens.shape[1], device=tokens.device)))


class Gpt(nn.Module):
    """Radford et al. 2019, twelve layers; the output product shares the embedding's weights."""

    vocabulary = 50304

    def __init__(self, width=768, layers=12, length=1024):
        super().__init__()
        self.embedding = Embedding(self.vocabulary, width, length)
        self.blocks = nn.ModuleList(Block(width, width // 64, causal=True) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, self.vocabulary, bias=False)
        self.head.weight = self.embedding.token.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)).flatten(0, 1)


def initialise(model):
    """Uses He initialisation before a ReLU, and small normal numbers elsewhere."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02 if module.weight.shape[1] < 2048 else 0.005)
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return model
