"""TAP: exports of the official tiny model, loaded by safetensors and by
transformers' own GlmForCausalLM, against what this build computes.

Usage: parity.py BUILD WORK VECTORS; parity.sh calls it.
"""

import json
import pathlib
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file, safe_open

ANSWER = 64  # tokens
BOUND = 1e-4  # of logits, fp32
build, work, vectors = map(pathlib.Path, sys.argv[1:4])
number = 0
failures = 0


def report(name, is_good, figure=""):
    global number, failures
    number += 1
    failures += not is_good
    print(f"{'ok' if is_good else 'not ok'} {number} - {name} {figure}")


def export(source, name, *options):
    target = work / name
    subprocess.run([build / "zero-offload", "export", "--model", source,
                    "--output", target, *options], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return target


def ours(model, rows):
    """The decoder's logits, and its greedy answers."""
    text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
    run = subprocess.run([build / "tests/print_logits", model, str(ANSWER)],
                         input=text, text=True, check=True,
                         capture_output=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return ([torch.tensor(line["logits"]) for line in lines],
            [line["answer"] for line in lines])


def load(path, dtype=torch.float32):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, output_loading_info=True)
    assert type(model).__name__ == "GlmForCausalLM", type(model)
    lost = [key for key, names in info.items() if names]
    assert not lost, info
    return model.eval()


def tensors_of(path):
    found = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}, opened.metadata()
        found.update(load_file(file))
    return found


def check_tensors():
    source = load_file(work / "model/model.safetensors")
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"),
                        (torch.float16, "fp16")):
        got = tensors_of(export(work / "model", f"official_{name}", "--dtype",
                                name, "--max-shard-size", "100K"))
        same = got.keys() == source.keys() and all(
            torch.equal(got[key], source[key].to(dtype))
            for key in source if "inv_freq" not in key)
        report(f"safetensors reads the official layout in {name}", same)


def gap_of(model, rows, logits):
    gap = 0.0
    for row, want in zip(rows, logits):
        with torch.no_grad():
            got = model(torch.tensor([row])).logits[0]
        gap = max(gap, float((got - want).abs().max()))
    return gap


def check_logits(rows):
    logits, _ = ours(work / "model", rows)
    for name in ("fp32", "bf16", "fp16"):
        path = export(work / "model", f"glm_{name}", "--layout", "glm",
                      "--dtype", name)
        if name != "fp32":  # the numbers that the export has, in fp32
            again = export(work / "model", f"half_{name}", "--dtype", name)
            logits, _ = ours(again, rows)
        gap = gap_of(load(path), rows, logits)
        report(f"GlmForCausalLM gives our logits from {name} within {BOUND}",
               gap <= BOUND, f"# {gap:.2e}")


def check_scaled(rows):
    """Positions that are interpolated, as those of chatglm2-6b-32k."""
    scaled = work / "scaled"
    scaled.mkdir()
    config = json.loads((work / "model/config.json").read_text())
    config["rope_ratio"] = 16
    config["_name_or_path"] = "THUDM/chatglm2-6b-32k"
    (scaled / "config.json").write_text(json.dumps(config))
    (scaled / "model.safetensors").symlink_to(
        work / "model/model.safetensors")
    logits, _ = ours(scaled, rows)
    plain, _ = ours(work / "model", rows)
    model = load(export(scaled, "scaled_glm", "--layout", "glm"))
    gap = gap_of(model, rows, logits)
    apart = max(float((a - b).abs().max()) for a, b in zip(logits, plain))
    report("so it does with interpolated positions",
           gap <= BOUND and apart > 0.01, f"# {gap:.2e}")


def check_answers():
    case = load_file(vectors / "tiny_eval_leftpad_case.safetensors")
    ids, mask = case["input_ids"].long(), case["attention_mask"].long()
    rows = [row[keep.bool()].tolist() for row, keep in zip(ids, mask)]
    logits, answers = ours(work / "model", rows)
    gap = max(float((want - got[keep.bool()]).abs().max()) for want, got, keep
              in zip(logits, case["logits"], mask))
    report("left-padded prompts have the official logits", gap <= BOUND,
           f"# {gap:.2e}")
    model = load(work / "glm_fp32")
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    made = model.generate(input_ids=ids, attention_mask=mask, do_sample=False,
                          max_new_tokens=ANSWER)[:, ids.shape[1]:].tolist()
    report(f"greedy answers to them are the same {ANSWER} tokens",
           made == answers)


def check_trained():
    """The official code's 20 steps, trained and exported here."""
    want = load_file(
        vectors / "tiny_adamw_wd0_noclip_linear_20steps.safetensors")
    case = load_file(vectors / "tiny_train_case.safetensors")
    with open(work / "rows.jsonl", "w") as rows:
        for ids, labels in zip(case["input_ids"].tolist(),
                               case["labels"].tolist()):
            count = len(ids) - ids[::-1].index(next(i for i in ids[::-1] if i))
            rows.write(json.dumps({"input_ids": ids[:count],
                                   "labels": labels[:count]}) + "\n")
    subprocess.run([build / "zero-offload", "train", "--model",
                    work / "model", "--data", work / "rows.jsonl", "--output",
                    work / "run", "--backend", "host", "--max-steps", "20",
                    "--per-device-train-batch-size", "3", "--no-shuffle",
                    "--learning-rate", "1e-3", "--lr-scheduler-type",
                    "linear"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    got = tensors_of(export(work / "run/latest", "trained"))
    kept = [key for key in want if key.startswith("transformer.")]
    worst = 0.0
    for key in kept:
        a, b = got[key].double(), want[key].double()
        if key.endswith("query_key_value.bias"):
            # Of a key's dimensions that are not rotated the gradient is zero
            # but for rounding, which AdamW blows up to full steps.
            idle = [64 + 16 * group + i for group in range(2)
                    for i in range(8, 16)]
            a[idle] = b[idle] = 0.0
        worst = max(worst, float((a - b).norm() / b.norm()))
    report("20 steps, exported from their state, are the official weights",
           len(kept) == 24 and worst <= 1e-5, f"# {worst:.2e}")
    model = load(export(work / "run/latest", "trained_glm", "--layout", "glm"))
    rows = [row[row != 0].tolist() for row in case["input_ids"].long()]
    logits, _ = ours(work / "run/model", rows)
    gap = gap_of(model, rows, logits)
    report("and GlmForCausalLM gives the logits of the trained model",
           gap <= BOUND, f"# {gap:.2e}")


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    train = load_file(vectors / "tiny_train_case.safetensors")
    rows = [row[row != 0].tolist() for row in train["input_ids"].long()]
    check_tensors()
    check_logits(rows)
    check_scaled(rows)
    check_answers()
    check_trained()
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
