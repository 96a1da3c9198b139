"""A vision transformer with LoRA adapters: only adapters and classifier are trained, sent and counted.

PYTHONPATH=examples fedbench run --model lora_vit:Vit --data digits --partition dirichlet --partition.clients 8 \\
    --model.head net.base_model.model.classifier --method fedper

It needs `pip install peft`. For pretrained weights, build the network with `from_pretrained`.
"""

import torch
from lightning import LightningModule
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification


class Vit(LightningModule):
    """A ViT of random weights; its attention gets adapters of this rank."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, width: int = 32, rank: int = 4) -> None:
        super().__init__()
        channels, side, _ = input_shape
        size = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = ViTConfig(image_size=side, patch_size=side // 4, num_channels=channels, num_labels=classes, **size)
        layers = {"target_modules": ["q_proj", "v_proj", "query", "value"], "modules_to_save": ["classifier"]}
        self.net = get_peft_model(ViTForImageClassification(config), LoraConfig(r=rank, **layers))

    def forward(self, x: Tensor) -> object:
        return self.net(pixel_values=x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self(x).logits, y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=5e-3)
