//! Short causal convolutions over positions, each element of a row by itself (LFM2).

use super::Ops;

impl Ops<'_> {
    /// `out = gate * sum over j of taps[j] * x[position - (taps - 1) + j]` for each element of each position.
    ///
    /// x, gate, out (positions, width); taps (taps, width), the last of which meets the position itself; before (taps - 1,
    /// width): the rows of x that came before. What is in `gate` is replaced by the result.
    pub fn short_convolution(self, gate: &mut [f32], x: &[f32], before: &[f32], taps: &[f32], width: usize) {
        assert!(gate.len() == x.len() && before.len() + width == taps.len());
        let past = before.len() / width;
        let row_of = |index: usize| match index.checked_sub(past) {
            Some(position) => &x[position * width..][..width],
            None => &before[index * width..][..width],
        };
        self.for_rows(gate, width, &|first, rows| {
            for (i, out) in rows.chunks_exact_mut(width).enumerate() {
                // A few elements at a time, so that their sums stay in registers. One product after the other, without
                // fusing: the same bits everywhere.
                for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                    let at = block * BLOCK..block * BLOCK + out.len();
                    let mut sums = [0.0f32; BLOCK];
                    for (j, tap) in taps.chunks_exact(width).enumerate() {
                        let row = &row_of(first + i + j)[at.clone()];
                        for ((sum, x), tap) in sums.iter_mut().zip(row).zip(&tap[at.clone()]) {
                            *sum += x * tap;
                        }
                    }
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out *= sum);
                }
            }
        });
    }
}

const BLOCK: usize = 32;

#[cfg(test)]
mod tests {
    use super::super::testing::Noise;
    use crate::kernels::{Isa, Ops, Pool};

    #[test]
    fn each_position_sees_the_taps_last_positions_whatever_the_batch() {
        let (width, taps, positions) = (40, 3, 9);
        let mut noise = Noise::new(3);
        let (x, gate) = (noise.vec(width * positions), noise.vec(width * positions));
        let (weights, before) = (noise.vec(width * taps), noise.vec(width * (taps - 1)));
        let pool = Pool::new(2);
        let ops = Ops::new(Isa::detect(), &pool);
        let mut whole = gate.clone();
        ops.short_convolution(&mut whole, &x, &before, &weights, width);
        let all = [before.clone(), x.clone()].concat();
        for position in 0..positions {
            for element in 0..width {
                let exact: f64 = (0..taps)
                    .map(|j| f64::from(all[(position + j) * width + element]) * f64::from(weights[j * width + element]))
                    .sum();
                let want = exact * f64::from(gate[position * width + element]);
                assert!((f64::from(whole[position * width + element]) - want).abs() < 1e-5);
            }
        }
        let (head, tail) = (4 * width, 4 * width);
        let mut pieces = gate;
        ops.short_convolution(&mut pieces[..head], &x[..head], &before, &weights, width);
        ops.short_convolution(&mut pieces[tail..], &x[tail..], &x[tail - 2 * width..tail], &weights, width);
        assert_eq!(pieces, whole);
    }
}
