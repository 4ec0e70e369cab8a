"""Supervised fine-tuning with TRL, of a small model on the descriptions of scikit-learn's datasets."""

from datasets import Dataset
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

from trainjob_progress.integrations.transformers import ReportProgress

loaders = (load_diabetes, load_digits, load_iris, load_wine)
texts = [line for load in loaders for line in load().DESCR.splitlines() if line.strip()]

tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["<unk>", "<pad>", "<eos>"]))
words = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>"
)

set_seed(0)
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
)
arguments = SFTConfig(
    "output",
    num_train_epochs=8,
    per_device_train_batch_size=8,
    learning_rate=1e-2,
    logging_steps=10,
    max_length=32,
    save_strategy="no",
    use_cpu=True,
    bf16=False,
    report_to=[],
)
trainer = SFTTrainer(
    model=LlamaForCausalLM(config),
    args=arguments,
    train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=words,
    callbacks=[ReportProgress],
)
print(f"loss={trainer.train().training_loss:.3f}")
