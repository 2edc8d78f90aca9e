//! Which experts stay: the most used, by a count that fades.
//!
//! Least-recently-used forgets a hot expert as soon as a prompt has passed through all of them; a count of uses that
//! halves every [`HALF_LIFE`] passes does not. Evicting looks at a few residents at random and takes the least used of
//! them, which is near enough to the least used of all and costs the same for any number of experts.

use super::extents::ExtentTable;

/// Passes after which a use counts half.
const HALF_LIFE: f32 = 64.0;
/// Residents looked at for one eviction.
const SAMPLE: usize = 24;
/// A newcomer must be this much hotter than the one it replaces, or equals would replace each other for ever.
const MARGIN: f32 = 1.1;

#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    uses: f32,
    pass: u64,
}

/// The expert extents in memory, and how hot each expert is.
#[derive(Debug)]
pub(super) struct ExpertCache {
    experts_per_layer: u32,
    /// By layer and expert.
    heat: Vec<Heat>,
    extents_of: Vec<u16>,
    extents_in_memory: Vec<u16>,
    /// Extents in memory, in no order, and where each is among them.
    residents: Vec<u32>,
    position: Vec<u32>,
    bytes: u64,
    whole: u32,
    random: u64,
}

impl ExpertCache {
    pub(super) fn new(table: &ExtentTable) -> Self {
        let experts_per_layer = u32::from(table.experts_per_layer());
        let experts = experts_per_layer as usize * table.layers();
        let mut cache = Self {
            experts_per_layer,
            heat: vec![Heat::default(); experts],
            extents_of: vec![0; experts],
            extents_in_memory: vec![0; experts],
            residents: Vec::new(),
            position: vec![u32::MAX; if experts == 0 { 0 } else { table.len() as usize }],
            bytes: 0,
            whole: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        for id in 0..table.len() {
            if let Some(expert) = cache.expert_of(table, id) {
                cache.extents_of[expert] += 1;
            }
        }
        cache
    }

    fn expert_of(&self, table: &ExtentTable, id: u32) -> Option<usize> {
        let extent = table.extent(id);
        extent.expert.map(|e| usize::from(extent.layer) * self.experts_per_layer as usize + usize::from(e))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Experts of all layers that have any extent.
    pub(super) fn experts(&self) -> u32 {
        self.extents_of.iter().filter(|&&extents| extents > 0).count() as u32
    }

    /// Experts wholly in memory.
    pub(super) fn experts_resident(&self) -> u32 {
        self.whole
    }

    /// The router chose the expert of this extent.
    pub(super) fn used(&mut self, table: &ExtentTable, id: u32, pass: u64) {
        if let Some(expert) = self.expert_of(table, id) {
            let uses = faded(self.heat[expert], pass) + 1.0;
            self.heat[expert] = Heat { uses, pass };
        }
    }

    fn heat_of(&self, table: &ExtentTable, id: u32, pass: u64) -> f32 {
        self.expert_of(table, id).map_or(0.0, |expert| faded(self.heat[expert], pass))
    }

    pub(super) fn insert(&mut self, table: &ExtentTable, id: u32) {
        self.position[id as usize] = self.residents.len() as u32;
        self.residents.push(id);
        self.bytes += table.pin_bytes(id);
        if let Some(expert) = self.expert_of(table, id) {
            self.extents_in_memory[expert] += 1;
            self.whole += u32::from(self.extents_in_memory[expert] == self.extents_of[expert]);
        }
    }

    pub(super) fn remove(&mut self, table: &ExtentTable, id: u32) {
        let at = std::mem::replace(&mut self.position[id as usize], u32::MAX) as usize;
        if at >= self.residents.len() {
            return;
        }
        self.residents.swap_remove(at);
        if let Some(&moved) = self.residents.get(at) {
            self.position[moved as usize] = at as u32;
        }
        self.bytes -= table.pin_bytes(id);
        if let Some(expert) = self.expert_of(table, id) {
            self.whole -= u32::from(self.extents_in_memory[expert] == self.extents_of[expert]);
            self.extents_in_memory[expert] -= 1;
        }
    }

    /// A resident among the least used, for which `may_go` holds.
    pub(super) fn coldest(&mut self, table: &ExtentTable, pass: u64, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let count = self.residents.len();
        let mut best: Option<(f32, u32)> = None;
        let start = if count == 0 { 0 } else { self.next_random() as usize % count };
        let stride = if count <= SAMPLE { 1 } else { (self.next_random() as usize % count).max(1) };
        for n in 0..count.min(SAMPLE) {
            let id = self.residents[(start + n * stride) % count];
            let heat = self.heat_of(table, id, pass);
            if may_go(id) && best.is_none_or(|(least, _)| heat < least) {
                best = Some((heat, id));
            }
        }
        best.map(|(_, id)| id).or_else(|| self.residents.iter().copied().find(|&id| may_go(id)))
    }

    /// Whether `newcomer` is worth more than `resident`.
    pub(super) fn hotter(&self, table: &ExtentTable, newcomer: u32, resident: u32, pass: u64) -> bool {
        self.heat_of(table, newcomer, pass) > MARGIN * self.heat_of(table, resident, pass)
    }

    /// xorshift64.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn faded(heat: Heat, pass: u64) -> f32 {
    heat.uses * (-(pass.saturating_sub(heat.pass) as f32) / HALF_LIFE).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::TensorType;
    use crate::weights::MatrixSpec;

    const LAYERS: u16 = 4;
    const EXPERTS: u16 = 64;

    fn table() -> ExtentTable {
        let spec = |layer: u16, expert: u16| MatrixSpec {
            name: String::new(),
            ty: TensorType::Q8_0,
            k: 256,
            rows: 64,
            part: 0,
            offset: u64::from(layer * EXPERTS + expert) << 20,
            layer,
            stage: layer.into(),
            expert: Some(expert),
        };
        let specs: Vec<_> = (0..LAYERS).flat_map(|layer| (0..EXPERTS).map(move |e| spec(layer, e))).collect();
        #[allow(clippy::unwrap_used)]
        ExtentTable::build(&specs, Default::default()).unwrap()
    }

    /// What experts a token asks for: 8 of a layer, the n-th most popular with a weight of 1 / n, as measured routers come
    /// near to; every 100th pass is a prompt, which asks for all.
    fn asked(table: &ExtentTable, pass: u64, random: &mut u64) -> Vec<u32> {
        let mut asked = Vec::new();
        for layer in 0..LAYERS {
            let mut chosen: Vec<u16> = Vec::new();
            while chosen.len() < if pass % 100 == 99 { EXPERTS.into() } else { 8 } {
                *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let uniform = (*random >> 11) as f64 / (1u64 << 53) as f64;
                // Popularity is another permutation in each layer.
                let rank = f64::from(EXPERTS).powf(uniform).floor() as u16 - 1;
                let expert = (rank * 37 + layer * 11) % EXPERTS;
                if pass % 100 == 99 {
                    chosen = (0..EXPERTS).collect();
                } else if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            chosen.sort_unstable();
            asked.extend(chosen.iter().flat_map(|&e| table.expert_extents(layer.into(), e)));
        }
        asked
    }

    #[test]
    fn keeping_the_most_used_experts_hits_more_often_than_keeping_the_latest() {
        let table = table();
        let capacity = table.len() as usize / 4;
        let bytes = capacity as u64 * table.pin_bytes(0);
        let (mut cache, mut latest, mut random) = (ExpertCache::new(&table), Vec::new(), 7);
        let (mut uses, mut hits, mut latest_hits) = (0u32, 0u32, 0u32);
        for pass in 0..1000 {
            for id in asked(&table, pass, &mut random) {
                cache.used(&table, id, pass);
                uses += 1;
                if cache.position[id as usize] != u32::MAX {
                    hits += 1;
                } else if cache.bytes() + table.pin_bytes(id) <= bytes {
                    cache.insert(&table, id);
                } else if let Some(coldest) = cache.coldest(&table, pass, |_| true)
                    && cache.hotter(&table, id, coldest, pass)
                {
                    cache.remove(&table, coldest);
                    cache.insert(&table, id);
                }
                match latest.iter().position(|&other| other == id) {
                    Some(at) => {
                        latest_hits += 1;
                        latest.remove(at);
                    }
                    None if latest.len() == capacity => {
                        latest.remove(0);
                    }
                    None => {}
                }
                latest.push(id);
            }
        }
        let share = |hits: u32| f64::from(hits) / f64::from(uses);
        let (hot, latest) = (share(hits), share(latest_hits));
        assert!(hot > latest + 0.05, "{hot:.3} of the uses hit, {latest:.3} with the latest");
    }
}
