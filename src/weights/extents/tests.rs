#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

pub(in super::super) fn matrix(
    ty: TensorType,
    k: usize,
    rows: usize,
    offset: u64,
    layer: u16,
    stage: u32,
) -> MatrixSpec {
    MatrixSpec { name: format!("m{layer}.{stage}"), ty, k, rows, part: 0, offset, layer, stage, expert: None }
}

/// A dense model in the layout of real files: the head first, then layers, tensors of a layer in another order than
/// they are used.
pub(in super::super) fn model(
    layers: u16,
    width: usize,
    ffn: usize,
    vocabulary: usize,
    ty: TensorType,
) -> Vec<MatrixSpec> {
    let mut specs = Vec::new();
    let mut offset = 4096;
    let mut add = |k: usize, rows: usize, layer: u16, stage: u32| {
        specs.push(matrix(ty, k, rows, offset, layer, stage));
        offset += (ty.row_bytes(k as u64).unwrap() * rows as u64).next_multiple_of(32);
    };
    add(width, vocabulary, layers, u32::from(layers) * 4);
    for layer in 0..layers {
        let stage = u32::from(layer) * 4;
        add(ffn, width, layer, stage + 3); // down
        add(width, ffn, layer, stage + 2); // gate
        add(width, ffn, layer, stage + 2); // up
        add(width, width / 4, layer, stage); // k
        add(width, width, layer, stage + 1); // output
        add(width, width, layer, stage); // q
        add(width, width / 4, layer, stage); // v
    }
    specs.sort_by_key(|spec| spec.stage);
    specs
}

fn build(specs: &[MatrixSpec]) -> ExtentTable {
    ExtentTable::build(specs, ExtentParams::default()).unwrap()
}

/// Every row of every matrix is in exactly one piece; pieces lie where the file has the rows.
fn assert_covers(table: &ExtentTable, specs: &[MatrixSpec]) {
    let mut covered = vec![0u64; specs.len()];
    let mut stage = 0;
    for id in 0..table.len() {
        let extent = *table.extent(id);
        assert!(extent.stage >= stage, "stages ascend");
        stage = extent.stage;
        assert!(table.stage_extents(stage).contains(&id));
        assert!(table.layer_extents(usize::from(extent.layer)).contains(&id));
        let mut reached = 0;
        for piece in table.pieces(id) {
            let spec = &specs[piece.matrix as usize];
            let row_bytes = spec.ty.row_bytes(spec.k as u64).unwrap();
            assert_eq!((spec.stage, spec.part, spec.expert), (extent.stage, extent.part, extent.expert));
            assert_eq!(extent.offset + u64::from(piece.offset), spec.offset + u64::from(piece.first_row) * row_bytes);
            assert_eq!(u64::from(piece.bytes), u64::from(piece.rows) * row_bytes);
            assert_eq!(u64::from(piece.first_row) % ROW_GROUP, 0);
            let end = piece.first_row + piece.rows;
            assert!(u64::from(end) % ROW_GROUP == 0 || end as usize == spec.rows);
            assert!(piece.offset >= reached && piece.rows > 0);
            reached = piece.offset + piece.bytes;
            covered[piece.matrix as usize] += u64::from(piece.rows);
        }
        assert_eq!(reached, extent.bytes);
        let (start, span) = table.read_span(id);
        assert!(start <= extent.offset && start + span >= extent.offset + u64::from(extent.bytes));
        assert_eq!((start % table.params().alignment, span % table.params().alignment), (0, 0));
        assert!(table.pin_bytes(id) <= table.slot_bytes());
    }
    let rows: Vec<u64> = specs.iter().map(|spec| spec.rows as u64).collect();
    assert_eq!(covered, rows);
}

#[test]
fn a_real_models_extents_are_near_an_eighth_of_a_layer() {
    // SmolLM2-135M in Q8_0.
    let specs = model(30, 576, 1536, 49152, TensorType::Q8_0);
    let table = build(&specs);
    assert_covers(&table, &specs);
    let layer: u64 = table.layer_extents(0).map(|id| u64::from(table.extent(id).bytes)).sum();
    assert!(table.slot_bytes() <= layer / 8 + layer / 40 + 8192, "{} of {layer}", table.slot_bytes());
    let head = table.layer_extents(30);
    assert_eq!(head.start, table.head_start());
    assert!(head.len() > 60, "the head streams in pieces as layers do");
    assert_eq!(table.layers(), 31);
}

#[test]
fn an_8b_model_has_few_thousand_extents_and_builds_quickly() {
    let specs = model(32, 4096, 14336, 128_256, TensorType::Q4_K);
    let begun = std::time::Instant::now();
    let table = build(&specs);
    assert!(begun.elapsed().as_millis() < 200, "{:?}", begun.elapsed());
    assert!((3000..6000).contains(&table.len()), "{}", table.len());
    assert!(table.slot_bytes() <= (1 << 20) + (64 << 10));
    assert_covers(&table, &specs);
}

#[test]
fn a_longer_model_of_the_same_width_needs_no_larger_slots() {
    let slots = |layers| build(&model(layers, 256, 1024, 1000, TensorType::Q4_0)).slot_bytes();
    assert_eq!(slots(4), slots(64));
    assert_eq!(slots(16), slots(64));
}

#[test]
fn neighbours_in_the_file_of_one_stage_are_one_read() {
    let row = TensorType::Q8_0.row_bytes(64).unwrap();
    let mut specs = vec![
        matrix(TensorType::Q8_0, 64, 100, 4096, 0, 0),
        matrix(TensorType::Q8_0, 64, 100, (4096 + 100 * row).next_multiple_of(32), 0, 0),
        matrix(TensorType::Q8_0, 64, 100, 1 << 20, 0, 0),
        matrix(TensorType::Q8_0, 64, 100, (1 << 20) + 100 * row, 0, 1),
    ];
    let table = build(&specs);
    assert_eq!((0..table.len()).map(|id| table.pieces(id).len()).collect::<Vec<_>>(), [2, 1, 1]);
    assert_covers(&table, &specs);
    specs[1].expert = Some(1);
    specs[0].expert = Some(0);
    let table = build(&specs);
    assert_eq!(table.len(), 4, "experts are extents of their own");
    assert_eq!(table.expert_extents(0, 1).len(), 1);
    assert_eq!(table.extent(table.expert_extents(0, 1).start).expert, Some(1));
    assert_eq!(table.expert_extents(0, 2).len(), 0);
    assert_eq!(table.experts_per_layer(), 2);
}

#[test]
fn rows_longer_than_an_extent_are_taken_by_the_group() {
    let specs = [matrix(TensorType::F32, 50_000, 70, 4096, 0, 0)];
    let table = build(&specs);
    assert_covers(&table, &specs);
    assert_eq!((0..table.len()).map(|id| table.pieces(id)[0].rows).collect::<Vec<_>>(), [16, 16, 16, 16, 6]);
}

#[test]
fn expanded_rows_lie_one_after_another_in_memory() {
    let specs = model(2, 256, 512, 300, TensorType::Q4_0);
    let params = ExtentParams { residency: Residency::Fp32, ..ExtentParams::default() };
    let table = ExtentTable::build(&specs, params).unwrap();
    for id in 0..table.len() {
        let mut at = 0;
        for piece in table.pieces(id) {
            assert_eq!(piece.offset, at);
            assert_eq!(piece.bytes, piece.rows * table.matrix(piece.matrix).k * 4);
            at += piece.bytes;
        }
        assert_eq!(at, table.extent(id).memory_bytes);
        assert!(table.slot_bytes() >= u64::from(at) + table.longest_read_bytes());
    }
}

#[test]
fn what_cannot_be_laid_out_is_refused_by_name() {
    let text = |specs: &[MatrixSpec]| ExtentTable::build(specs, ExtentParams::default()).unwrap_err().to_string();
    let good = matrix(TensorType::Q4_K, 256, 16, 0, 0, 1);
    assert!(text(&[MatrixSpec { k: 100, ..good.clone() }]).contains("m0.1: a row of 100 elements"));
    assert!(text(&[MatrixSpec { k: usize::MAX / 256 * 256, ..good.clone() }]).contains("m0.1"));
    assert!(text(&[MatrixSpec { rows: usize::MAX, ..good.clone() }]).contains("more than"));
    assert!(text(&[good.clone(), MatrixSpec { stage: 0, ..good }]).contains("stage 0 comes after stage 1"));
    assert!(build(&[]).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_layout_is_covered_exactly_once(
        shapes in prop::collection::vec((1usize..40, 1usize..700, 0u64..3, 0u64..2000), 1..30),
        alignment in prop::sample::select(vec![1u64, 512, 4096]),
    ) {
        let mut offset = 100;
        let mut stage = 0;
        let specs: Vec<MatrixSpec> = shapes.iter().map(|&(blocks, rows, step, gap)| {
            stage += u32::from(step == 2);
            offset += gap;
            let spec = matrix(TensorType::Q4_1, blocks * 32, rows, offset, (stage / 4) as u16, stage);
            offset += (blocks * 20 * rows) as u64;
            spec
        }).collect();
        let params = ExtentParams { alignment, least_bytes: 4096, most_bytes: 16384, ..ExtentParams::default() };
        let table = ExtentTable::build(&specs, params).unwrap();
        assert_covers(&table, &specs);
    }
}
