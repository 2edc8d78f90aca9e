//! Choosing the next token from the logits.
//!
//! In llama.cpp's order: repeat penalty, top-k, top-p, min-p, temperature, then a draw. Filters look at the distribution
//! before the temperature. Only the candidates are sorted, never the vocabulary. With a seed, the same logits give the
//! same tokens on every machine.

use std::hash::{BuildHasher, Hasher};

use crate::kernels::Isa;
use crate::kernels::ops::math;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sampling {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// 0 keeps every token.
    pub top_k: u32,
    /// 1 keeps every token.
    pub top_p: f32,
    pub min_p: f32,
    /// 1 changes nothing.
    pub repeat_penalty: f32,
    /// `None` draws a fresh seed for each answer.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.7, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1.0, seed: None }
    }
}

impl Sampling {
    pub fn is_temperature(value: f32) -> bool {
        value >= 0.0 && value.is_finite()
    }

    /// For `top_p` and `min_p`.
    pub fn is_share(value: f32) -> bool {
        (0.0..=1.0).contains(&value)
    }

    pub fn is_penalty(value: f32) -> bool {
        value > 0.0 && value.is_finite()
    }

    /// The same with the usual value wherever one makes no sense: for what a stranger's file says.
    pub fn sound(self) -> Self {
        let usual = Self::default();
        let or = |value, holds: fn(f32) -> bool, usual| if holds(value) { value } else { usual };
        Self {
            temperature: or(self.temperature, Self::is_temperature, usual.temperature),
            top_p: or(self.top_p, Self::is_share, usual.top_p),
            min_p: or(self.min_p, Self::is_share, usual.min_p),
            repeat_penalty: or(self.repeat_penalty, Self::is_penalty, usual.repeat_penalty),
            ..self
        }
    }
}

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    logit: f32,
    id: u32,
}

/// Chooses tokens for one answer; holds the state of the random numbers.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
    isa: Isa,
    candidates: Vec<Candidate>,
    penalised: Vec<u32>,
    /// Mass by distance from the largest logit, for top-p without top-k.
    bins: Vec<f64>,
}

/// Candidates that top-k gathers beyond k before it cuts back.
const SLACK: usize = 256;

/// Bins of the histogram; the last holds all that is too far below the largest logit to matter.
const BINS: usize = 2048;
const BINS_PER_UNIT: f32 = 64.0;

/// Logits whose exponentials are computed together.
const EXP_BLOCK: usize = 256;

impl Sampler {
    /// `vocab` is the number of logits.
    pub fn new(sampling: &Sampling, vocab: usize) -> Self {
        let seed = sampling.seed.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
        let room = (sampling.top_k as usize).min(vocab) + SLACK;
        Self {
            sampling: sampling.clone(),
            random: Random::new(seed),
            isa: Isa::detect(),
            candidates: Vec::with_capacity(room),
            penalised: Vec::new(),
            bins: Vec::new(),
        }
    }

    /// The next token. `logits` (vocab) are overwritten; `recent` are the tokens that the repeat penalty is for.
    ///
    /// NaN is never chosen unless nothing else is there.
    pub fn sample(&mut self, logits: &mut [f32], recent: &[u32]) -> u32 {
        self.penalise(logits, recent);
        let (best, most) = largest(logits);
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        // A temperature that is no number is greedy too. An infinite logit leaves no distribution to draw from.
        if temperature.is_nan() || temperature <= 0.0 || top_k == 1 || !most.is_finite() {
            return best;
        }
        let least = if min_p > 0.0 { most + libm::logf(min_p) } else { f32::NEG_INFINITY };
        if top_k > 0 && (top_k as usize) < logits.len() {
            self.take_top_k(logits, top_k as usize);
            if top_p < 1.0 {
                self.keep_nucleus(most, top_p);
            }
            self.candidates.retain(|candidate| candidate.logit >= least);
            return self.draw(most).unwrap_or(best);
        }
        if top_p < 1.0 {
            self.hide_all_but_nucleus(logits, most, top_p);
        }
        self.draw_from_all(logits, most, least)
    }

    /// Positive logits of recent tokens are divided by the penalty, negative ones multiplied, each once (Keskar et al.,
    /// arXiv 1909.05858, as llama.cpp has it).
    fn penalise(&mut self, logits: &mut [f32], recent: &[u32]) {
        let penalty = self.sampling.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        self.penalised.clear();
        self.penalised.extend_from_slice(recent);
        self.penalised.sort_unstable();
        self.penalised.dedup();
        for &id in &self.penalised {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
    }

    /// The `k` largest logits, the earlier of equal ones, in no order.
    fn take_top_k(&mut self, logits: &[f32], k: usize) {
        let candidates = &mut self.candidates;
        candidates.clear();
        let mut threshold = f32::NEG_INFINITY;
        for_each_above(logits, &mut threshold, |logit, id, threshold| {
            candidates.push(Candidate { logit, id });
            if candidates.len() >= k + SLACK {
                let (_, least, _) = candidates.select_nth_unstable_by(k - 1, by_rank);
                *threshold = least.logit;
                candidates.truncate(k);
            }
        });
        if candidates.len() > k {
            candidates.select_nth_unstable_by(k - 1, by_rank);
            candidates.truncate(k);
        }
    }

    /// Keeps the fewest of the likeliest candidates that hold `top_p` of their mass.
    fn keep_nucleus(&mut self, most: f32, top_p: f32) {
        self.candidates.sort_unstable_by(by_rank);
        let all: f64 = self.candidates.iter().map(|c| f64::from(math::exp(c.logit - most))).sum();
        if let Some(last) = last_within(&self.candidates, most, f64::from(top_p) * all) {
            self.candidates.truncate(last + 1);
        }
    }

    /// The same for the whole vocabulary, without a sort: a histogram of the mass by logit says in which narrow bin the
    /// last kept token is, and only that bin is sorted. The logits of the others become minus infinity.
    fn hide_all_but_nucleus(&mut self, logits: &mut [f32], most: f32, top_p: f32) {
        let bin_of = |logit: f32| (((most - logit) * BINS_PER_UNIT) as usize).min(BINS - 1);
        self.bins.clear();
        self.bins.resize(BINS, 0.0);
        let mut weights = [0.0; EXP_BLOCK];
        for part in logits.chunks(EXP_BLOCK) {
            let weights = &mut weights[..part.len()];
            weights.copy_from_slice(part);
            math::exp_scaled(self.isa, weights, most, 1.0);
            for (&weight, &logit) in weights.iter().zip(part) {
                if weight > 0.0 {
                    self.bins[bin_of(logit)] += f64::from(weight);
                }
            }
        }
        let mut left = f64::from(top_p) * self.bins.iter().sum::<f64>();
        let crossed = self.bins.iter().position(|&bin| {
            let crossed = bin >= left;
            left -= if crossed { 0.0 } else { bin };
            crossed
        });
        let crossed = crossed.unwrap_or(BINS - 1);
        let of_bin = logits.iter().zip(0..).filter(|(logit, _)| bin_of(**logit) == crossed && !logit.is_nan());
        self.candidates.clear();
        self.candidates.extend(of_bin.map(|(&logit, id)| Candidate { logit, id }));
        self.candidates.sort_unstable_by(by_rank);
        let Some(last) = last_within(&self.candidates, most, left).map(|last| self.candidates[last]) else { return };
        for (logit, id) in logits.iter_mut().zip(0..) {
            if *logit < last.logit || *logit == last.logit && id > last.id {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    /// One of the candidates, by its share at the temperature; `None` if there are none.
    fn draw(&mut self, most: f32) -> Option<u32> {
        // Whatever way they were found in.
        self.candidates.sort_unstable_by(by_rank);
        let temperature = self.sampling.temperature;
        let weight = |candidate: &Candidate| f64::from(math::exp((candidate.logit - most) / temperature));
        let all: f64 = self.candidates.iter().map(weight).sum();
        let mut left = self.random.unit() * all;
        for candidate in &self.candidates {
            left -= weight(candidate);
            if left < 0.0 {
                return Some(candidate.id);
            }
        }
        self.candidates.first().map(|candidate| candidate.id)
    }

    /// The same over the whole vocabulary, but for logits under `least`; `logits` become weights.
    fn draw_from_all(&mut self, logits: &mut [f32], most: f32, least: f32) -> u32 {
        for logit in logits.iter_mut() {
            *logit = if *logit >= least { *logit } else { f32::NEG_INFINITY };
        }
        math::exp_scaled(self.isa, logits, most, 1.0 / self.sampling.temperature);
        let all: f64 = logits.iter().map(|&weight| f64::from(weight)).sum();
        let mut left = self.random.unit() * all;
        let mut last = 0;
        for (id, &weight) in logits.iter().enumerate() {
            if weight > 0.0 {
                left -= f64::from(weight);
                last = id;
                if left < 0.0 {
                    break;
                }
            }
        }
        last as u32
    }
}

/// Where the exponentials of sorted candidates reach `mass`; the last of them if they do not.
fn last_within(candidates: &[Candidate], most: f32, mass: f64) -> Option<usize> {
    let mut left = mass;
    let reached = candidates.iter().position(|candidate| {
        left -= f64::from(math::exp(candidate.logit - most));
        left <= 0.0
    });
    reached.or(candidates.len().checked_sub(1))
}

/// Larger logits first, then smaller ids; no candidate is NaN.
fn by_rank(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Logits looked at together; the compiler makes vectors of them.
const BLOCK: usize = 32;

/// The largest of a block, NaN ignored.
fn largest_of(block: &[f32; BLOCK]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    for part in block.as_chunks::<8>().0 {
        for (lane, &x) in lanes.iter_mut().zip(part) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

/// The token of the first largest logit; 0 if there is none.
pub(crate) fn likeliest(logits: &[f32]) -> u32 {
    largest(logits).0
}

/// The first largest logit and its value; token 0 and minus infinity if there is none.
fn largest(logits: &[f32]) -> (u32, f32) {
    let (mut best, mut most) = (0, f32::NEG_INFINITY);
    for_each_above(logits, &mut { f32::NEG_INFINITY }, |logit, id, threshold| {
        (best, most) = (id, logit);
        *threshold = logit;
    });
    (best, most)
}

/// Calls `found(logit, id, threshold)` for logits above the threshold, which it may raise, in order.
fn for_each_above(logits: &[f32], threshold: &mut f32, mut found: impl FnMut(f32, u32, &mut f32)) {
    let (blocks, tail) = logits.as_chunks::<BLOCK>();
    let mut scan = |part: &[f32], first: usize, threshold: &mut f32| {
        for (i, &logit) in part.iter().enumerate() {
            if logit > *threshold {
                found(logit, (first + i) as u32, threshold);
            }
        }
    };
    for (i, block) in blocks.iter().enumerate() {
        if largest_of(block) > *threshold {
            scan(block, i * BLOCK, threshold);
        }
    }
    scan(tail, blocks.len() * BLOCK, threshold);
}

/// xoshiro256++ (Blackman and Vigna, arXiv 1805.01407), seeded by splitmix64.
#[derive(Clone, Debug)]
struct Random([u64; 4]);

impl Random {
    fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in 0..1, 53 bits.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: Some(1) }
    }

    /// Noise of a shape like a model's logits.
    fn noise(seed: u64, len: usize) -> Vec<f32> {
        let mut random = Random::new(seed);
        (0..len).map(|_| ((0..6).map(|_| random.unit()).sum::<f64>() * 4.0 - 12.0) as f32).collect()
    }

    /// The share of each token over many draws.
    fn shares(sampling: &Sampling, logits: &[f32], draws: usize) -> Vec<f64> {
        let mut sampler = Sampler::new(sampling, logits.len());
        let mut counts = vec![0.0; logits.len()];
        for _ in 0..draws {
            counts[sampler.sample(&mut logits.to_vec(), &[]) as usize] += 1.0 / draws as f64;
        }
        counts
    }

    /// The definition: filters in order over a sorted list, in f64.
    fn truth(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
        let mut list: Vec<(f64, usize)> = logits.iter().enumerate().map(|(i, &l)| (f64::from(l), i)).collect();
        list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if sampling.top_k > 0 {
            list.truncate(sampling.top_k as usize);
        }
        let softmax = |list: &[(f64, usize)], temperature: f64| {
            let sum: f64 = list.iter().map(|l| (l.0 / temperature).exp()).sum();
            list.iter().map(|l| (l.0 / temperature).exp() / sum).collect::<Vec<_>>()
        };
        if sampling.top_p < 1.0 {
            let mut held = 0.0;
            let probabilities = softmax(&list, 1.0);
            let kept = probabilities.iter().take_while(|p| {
                let more = held < f64::from(sampling.top_p);
                held += **p;
                more
            });
            list.truncate(kept.count());
        }
        let most = list[0].0;
        list.retain(|l| (l.0 - most).exp() >= f64::from(sampling.min_p));
        let mut shares = vec![0.0; logits.len()];
        for (p, l) in softmax(&list, f64::from(sampling.temperature)).iter().zip(&list) {
            shares[l.1] = *p;
        }
        shares
    }

    #[test]
    fn draws_follow_the_filtered_distribution() {
        let logits = noise(3, 300);
        let cases = [
            sampling(),
            Sampling { temperature: 0.5, ..sampling() },
            Sampling { top_k: 5, ..sampling() },
            Sampling { top_p: 0.6, ..sampling() },
            Sampling { min_p: 0.1, ..sampling() },
            Sampling { top_k: 20, top_p: 0.9, min_p: 0.05, temperature: 1.5, ..sampling() },
            Sampling { top_p: 0.95, min_p: 0.05, temperature: 0.8, ..sampling() },
            Sampling { top_k: 100_000, ..sampling() },
        ];
        for case in cases {
            let want = truth(&case, &logits);
            let got = shares(&case, &logits, 40_000);
            for (id, (got, want)) in got.iter().zip(&want).enumerate() {
                // Four standard deviations, and nothing at all where nothing is due.
                let tolerance = 4.0 * (want * (1.0 - want) / 40_000.0).sqrt() + 1e-4 * f64::from(*want > 0.0);
                assert!((got - want).abs() <= tolerance, "{case:?}: token {id} has {got}, not {want}");
            }
        }
    }

    #[test]
    fn greedy_takes_the_first_largest() {
        let mut sampler = Sampler::new(&Sampling { temperature: 0.0, ..sampling() }, 100);
        let mut logits = noise(4, 100);
        (logits[70], logits[31], logits[99]) = (50.0, 50.0, 50.0);
        assert_eq!(sampler.sample(&mut logits, &[]), 31);
    }

    #[test]
    fn the_top_k_are_those_of_a_full_sort() {
        for (len, k) in [(1000, 1), (1000, 40), (5000, 999), (70, 69), (33, 2)] {
            // Many equal logits.
            let logits: Vec<f32> = noise(len as u64, len).iter().map(|l| l.round()).collect();
            let mut sampler = Sampler::new(&sampling(), len);
            sampler.take_top_k(&logits, k);
            sampler.candidates.sort_unstable_by(by_rank);
            let mut all: Vec<u32> = (0..len as u32).collect();
            all.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
            let got: Vec<u32> = sampler.candidates.iter().map(|c| c.id).collect();
            assert_eq!(got, all[..k]);
        }
    }

    #[test]
    fn the_repeat_penalty_counts_a_token_once() {
        let mut sampler = Sampler::new(&Sampling { repeat_penalty: 2.0, temperature: 0.0, ..sampling() }, 4);
        let mut logits = vec![3.0, -1.0, 2.0, 1.0];
        assert_eq!(sampler.sample(&mut logits, &[0, 1, 0, 77]), 2);
        assert_eq!(logits, [1.5, -2.0, 2.0, 1.0]);
    }

    #[test]
    fn a_seed_repeats_and_no_seed_does_not() {
        let logits = noise(5, 1000);
        let run = |sampling: &Sampling| {
            let mut sampler = Sampler::new(sampling, 1000);
            (0..50).map(|_| sampler.sample(&mut logits.clone(), &[])).collect::<Vec<_>>()
        };
        let fresh = Sampling { seed: None, ..sampling() };
        assert_eq!(run(&sampling()), run(&sampling()));
        assert_ne!(run(&sampling()), run(&Sampling { seed: Some(2), ..sampling() }));
        assert_ne!(run(&fresh), run(&fresh));
    }

    #[test]
    fn the_random_numbers_are_xoshiro256_plus_plus() {
        // The first outputs of the authors' C code from the state 1, 2, 3, 4.
        let mut random = Random([1, 2, 3, 4]);
        let got: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(got, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn logits_that_are_not_numbers_never_panic_and_are_never_chosen() {
        for fill in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0] {
            for case in [
                Sampling::default(),
                sampling(),
                Sampling { top_p: 0.5, ..sampling() },
                Sampling { min_p: 0.5, ..sampling() },
                Sampling { temperature: f32::NAN, ..sampling() },
                Sampling { temperature: 1e-30, ..sampling() },
                Sampling { temperature: f32::INFINITY, top_k: 3, ..sampling() },
            ] {
                let mut logits = vec![fill; 100];
                assert!(Sampler::new(&case, 100).sample(&mut logits.clone(), &[1]) < 100);
                logits[..99].fill(f32::NAN);
                logits[99] = 1.0;
                assert_eq!(Sampler::new(&case, 100).sample(&mut logits, &[1]), 99, "{case:?}");
            }
        }
    }
}
