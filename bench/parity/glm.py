"""ChatGLM2 as transformers' GlmForCausalLM: its configuration, and the names.

The official layout's names and shapes are on the left everywhere; the rows of
query_key_value are q, k and v, which GlmForCausalLM holds apart.
"""
import json
import os

import torch

FULL_WIDTH = dict(layers=4, hidden=4096, heads=32, groups=2, width=128,
                  ffn=13696, vocab=65024)
# For trying the scripts where there is no GPU.
SMALL = dict(layers=2, hidden=256, heads=4, groups=2, width=64, ffn=688,
             vocab=1024)


def official_config(size, dtype):
    """config.json of the official layout."""
    return {
        "model_type": "chatglm", "num_layers": size["layers"],
        "hidden_size": size["hidden"],
        "num_attention_heads": size["heads"], "kv_channels": size["width"],
        "multi_query_attention": True,
        "multi_query_group_num": size["groups"],
        "ffn_hidden_size": size["ffn"], "padded_vocab_size": size["vocab"],
        "seq_length": 32768, "layernorm_epsilon": 1e-5, "rmsnorm": True,
        "post_layer_norm": True, "add_qkv_bias": True,
        "add_bias_linear": False, "original_rope": True,
        "apply_residual_connection_post_layernorm": False,
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "eos_token_id": 2, "pad_token_id": 0,
    }


def glm_config(official):
    """The same model's GlmConfig."""
    from transformers import GlmConfig
    return GlmConfig(
        vocab_size=official["padded_vocab_size"],
        hidden_size=official["hidden_size"],
        intermediate_size=official["ffn_hidden_size"],
        num_hidden_layers=official["num_layers"],
        num_attention_heads=official["num_attention_heads"],
        num_key_value_heads=official["multi_query_group_num"],
        head_dim=official["kv_channels"], hidden_act="silu",
        rms_norm_eps=official["layernorm_epsilon"],
        max_position_embeddings=official["seq_length"],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "partial_rotary_factor": 0.5},
        attention_bias=True, attention_dropout=0.0,
        tie_word_embeddings=False, use_cache=False, eos_token_id=2,
        bos_token_id=1,
        pad_token_id=None)  # 0 would keep row 0's gradient at zero


def shapes(official):
    """Official name -> shape, in the order of the official files."""
    hidden, ffn = official["hidden_size"], official["ffn_hidden_size"]
    vocab = official["padded_vocab_size"]
    width = official["kv_channels"]
    q = official["num_attention_heads"] * width
    qkv = q + 2 * official["multi_query_group_num"] * width
    found = {"transformer.embedding.word_embeddings.weight": (vocab, hidden)}
    for i in range(official["num_layers"]):
        layer = f"transformer.encoder.layers.{i}."
        found[layer + "input_layernorm.weight"] = (hidden,)
        found[layer + "self_attention.query_key_value.weight"] = (qkv, hidden)
        found[layer + "self_attention.query_key_value.bias"] = (qkv,)
        found[layer + "self_attention.dense.weight"] = (hidden, q)
        found[layer + "post_attention_layernorm.weight"] = (hidden,)
        found[layer + "mlp.dense_h_to_4h.weight"] = (2 * ffn, hidden)
        found[layer + "mlp.dense_4h_to_h.weight"] = (hidden, ffn)
    found["transformer.encoder.final_layernorm.weight"] = (hidden,)
    found["transformer.output_layer.weight"] = (vocab, hidden)
    return found


def glm_names(name):
    """GlmForCausalLM's name; for query_key_value the three names, in order."""
    fixed = {
        "transformer.embedding.word_embeddings.weight":
            "model.embed_tokens.weight",
        "transformer.encoder.final_layernorm.weight": "model.norm.weight",
        "transformer.output_layer.weight": "lm_head.weight",
    }
    if name in fixed:
        return [fixed[name]]
    name = name.replace("transformer.encoder.layers.", "model.layers.")
    if "self_attention.query_key_value" in name:
        return [name.replace("self_attention.query_key_value",
                             f"self_attn.{part}_proj") for part in "qkv"]
    for official, glm in (("self_attention.dense", "self_attn.o_proj"),
                          ("mlp.dense_h_to_4h", "mlp.gate_up_proj"),
                          ("mlp.dense_4h_to_h", "mlp.down_proj")):
        name = name.replace(official, glm)
    return [name]


def load(folder, dtype, device, attention):
    """GlmForCausalLM with the weights of a directory in the official layout."""
    from safetensors import safe_open
    from transformers import GlmForCausalLM
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        official = json.load(file)
    config = glm_config(official)
    config._attn_implementation = attention
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = GlmForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    parameters = dict(model.named_parameters())
    left = set(parameters)
    path = os.path.join(folder, "model.safetensors")
    with torch.no_grad(), safe_open(path, "pt", device=str(device)) as file:
        for name, shape in shapes(official).items():
            tensor = file.get_tensor(name)
            assert tuple(tensor.shape) == shape, name
            first = 0
            for part in glm_names(name):
                target = parameters[part]
                target.copy_(tensor[first:first + target.shape[0]])
                first += target.shape[0]
                left.remove(part)
            assert first == shape[0], name
    assert not left, left
    return model, official


def gradients(model, official):
    """Official name -> gradient, q, k and v in one, on the CPU; in order."""
    parameters = dict(model.named_parameters())
    found = {}
    for name in shapes(official):
        parts = [parameters[part].grad for part in glm_names(name)]
        found["grad." + name] = torch.cat(parts).cpu() \
            if len(parts) > 1 else parts[0].cpu()
    return found
