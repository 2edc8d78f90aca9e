//! The transformer: what a model file says it is, and the forward pass over its streamed weights.
//!
//! A family of models is a row of [`architecture::ARCHITECTURES`]; there is one forward pass for all.
//! Not responsible for where weights are (`weights`), for arithmetic (`kernels`), or for text.

pub mod architecture;
mod block_weights;
mod convolution_state;
mod error;
mod experts;
mod forward;
mod header;
mod hyperparameters;
mod kv_cache;
mod latent;
mod layout;
mod rope;
mod rope_scaling;
mod scratch;
mod times;

pub use error::ModelError;
pub use forward::{Hooks, NoHooks, Want};
pub use hyperparameters::{Experts, Hyperparameters};
pub use kv_cache::{KvCache, KvGrowth};
pub use times::{Op, OpTimes};

use forward::Pass;
use layout::Layout;
use rope::Rope;
use scratch::{Scratch, ScratchShape};

use crate::gguf::Gguf;
use crate::kernels::ops::KvElement;
use crate::kernels::{Cancel, Groups, Interleave, Kernels, Ops, Pool};
use crate::weights::{PassEnd, StoreOptions, WeightStore};

/// How a model is to be run.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    pub kernels: Kernels,
    pub threads: usize,
    pub kv: KvElement,
    /// Most positions that the context may come to hold; RoPE scaling may depend on it.
    pub context: usize,
    pub store: StoreOptions,
}

/// A model ready to run: its weights behind the store, its cache, its buffers.
pub struct Model {
    hp: Hyperparameters,
    layout: Layout,
    store: WeightStore,
    cache: KvCache,
    rope: Rope,
    scratch: Scratch,
    shape: ScratchShape,
    pool: Pool,
    times: OpTimes,
    logit_rows: usize,
    interleaving_bytes: usize,
}

/// Bytes that threads come to hold for interleaving rows: readers, and the kernels' where rows do not come so.
fn interleaving_bytes(store: &WeightStore, shape: &ScratchShape) -> usize {
    let of_thread = store.table().matrices().iter().map(|matrix| {
        let here = store.interleave_of(matrix.ty).is_some();
        Interleave::of(shape.kernels, matrix.ty)
            .map_or(0, |interleave| interleave.scratch_bytes(matrix.rows as usize, matrix.row_bytes as usize, here))
    });
    store.scratch_bytes() + shape.threads * of_thread.max().unwrap_or(0)
}

impl Model {
    /// Checks the file against its header and opens its weights; reads none of the matrices yet.
    ///
    /// # Errors
    /// The header contradicts itself or the tensors, or the file cannot be read.
    pub fn open(gguf: &Gguf, options: ModelOptions) -> Result<Self, ModelError> {
        let hp = Hyperparameters::from_gguf(gguf)?;
        let mut layout = Layout::new(gguf, &hp)?;
        let matrices = std::mem::take(&mut layout.matrices);
        let paths: Vec<_> = gguf.parts().iter().map(|part| part.path.clone()).collect();
        let mut types = Vec::new();
        for matrix in &matrices {
            if !types.contains(&matrix.ty) {
                types.push(matrix.ty);
            }
        }
        let kept_for = StoreOptions { kernels: Some(options.kernels), ..options.store };
        let store = WeightStore::open(&paths, &matrices, kept_for)?;
        let rope = Rope::new(&hp, &layout, options.context);
        let cache = KvCache::new(&hp, options.kv);
        let pool = Pool::new(options.threads);
        let shape = ScratchShape {
            kernels: options.kernels,
            types,
            threads: pool.threads(),
            kv: *cache.layout(),
            context: options.context,
            row_bytes: layout.embedding.at.row_bytes,
        };
        let scratch = Scratch::new(&hp, &shape, 1, 1);
        let interleaving_bytes = interleaving_bytes(&store, &shape);
        Ok(Self {
            hp,
            layout,
            store,
            cache,
            rope,
            scratch,
            pool,
            shape,
            times: OpTimes::default(),
            logit_rows: 0,
            interleaving_bytes,
        })
    }

    pub fn hyperparameters(&self) -> &Hyperparameters {
        &self.hp
    }

    pub fn store(&self) -> &WeightStore {
        &self.store
    }

    pub fn store_mut(&mut self) -> &mut WeightStore {
        &mut self.store
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn kernels(&self) -> Kernels {
        self.shape.kernels
    }

    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    pub fn cache_mut(&mut self) -> &mut KvCache {
        &mut self.cache
    }

    pub fn times_mut(&mut self) -> &mut OpTimes {
        &mut self.times
    }

    /// Bytes of the vectors that stay in memory: norms, biases, RoPE tables.
    pub fn resident_bytes(&self) -> usize {
        self.layout.resident_bytes() + self.rope.bytes()
    }

    /// Bytes of a pass's buffers for batches of `positions` with `logit_rows` positions of logits.
    pub fn scratch_bytes(&self, positions: usize, logit_rows: usize) -> usize {
        Scratch::bytes_for(&self.hp, &self.shape, positions, logit_rows) + self.interleaving_bytes
    }

    /// Makes the buffers fit batches of `positions`; gives memory back when that is fewer than before.
    pub fn set_batch(&mut self, positions: usize, logit_rows: usize) {
        if self.scratch.positions != positions || self.scratch.logits.len() != logit_rows * self.hp.vocabulary {
            // The old buffers go before the new ones come: both together would break the budget.
            self.scratch = Scratch::new(&self.hp, &self.shape, 0, 0);
            self.scratch = Scratch::new(&self.hp, &self.shape, positions, logit_rows);
        }
    }

    /// Bytes of the buffers as they are now.
    pub fn buffer_bytes(&self) -> usize {
        let logit_rows = self.scratch.logits.len() / self.hp.vocabulary;
        // What is for interleaving is taken by each thread when it first has rows to interleave.
        let interleaving = Groups::held_bytes().min(self.interleaving_bytes);
        self.scratch_bytes(self.scratch.positions, logit_rows) - self.interleaving_bytes + interleaving
    }

    /// Weight bytes that one decoded token needs: every matrix but the experts not chosen, and one embedding row.
    pub fn touched_bytes_per_token(&self) -> u64 {
        let table = self.store.table();
        let always = table.always_file_bytes();
        let experts = table.all_file_bytes() - always;
        let chosen = self.hp.experts.map_or(0, |e| experts * e.used as u64 / e.count as u64);
        always + chosen + self.layout.embedding.at.row_bytes as u64
    }

    /// Positions that one pass can take.
    pub fn batch(&self) -> usize {
        self.scratch.positions
    }

    /// Runs `tokens`, at most a batch, at the positions after those in the cache, which then holds them too.
    ///
    /// When it fails or is cancelled the cache holds what it held before.
    ///
    /// # Errors
    /// A token outside the vocabulary, a read that fails, or a cancel.
    pub fn forward(
        &mut self,
        tokens: &[u32],
        want: Want,
        hooks: &mut dyn Hooks,
        cancel: &Cancel,
    ) -> Result<(), ModelError> {
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= self.hp.vocabulary) {
            return Err(ModelError::Token { id, vocabulary: self.hp.vocabulary });
        }
        if tokens.is_empty() {
            return Ok(());
        }
        let first = self.cache.positions();
        self.cache.reserve(first + tokens.len())?;
        self.rope.grow(first + tokens.len());
        let end = if want == Want::Nothing { PassEnd::Blocks } else { PassEnd::Head };
        self.store.begin_pass(tokens.len(), end);
        let mut pass = Pass {
            hp: &self.hp,
            layout: &self.layout,
            store: &mut self.store,
            cache: &mut self.cache,
            rope: &self.rope,
            kernels: self.shape.kernels,
            pool: &self.pool,
            ops: Ops::new(self.shape.kernels.isa, &self.pool),
            hooks,
            cancel,
            times: &mut self.times,
            first,
            positions: tokens.len(),
        };
        let result = pass.run(tokens, want, &mut self.scratch);
        self.store.end_pass();
        result?;
        self.cache.advance(first + tokens.len());
        self.logit_rows = match want {
            Want::Nothing => 0,
            Want::Last => 1,
            Want::All => tokens.len(),
        };
        Ok(())
    }

    /// Logits of the positions that the last pass wanted: (rows, vocabulary).
    pub fn logits(&self) -> &[f32] {
        &self.scratch.logits[..self.logit_rows * self.hp.vocabulary]
    }

    /// The same, to be worked on by a sampler.
    pub fn logits_mut(&mut self) -> &mut [f32] {
        &mut self.scratch.logits[..self.logit_rows * self.hp.vocabulary]
    }
}
