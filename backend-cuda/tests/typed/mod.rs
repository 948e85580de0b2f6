//! Numbers in either type of activations, to and from a device.

use treeline_cuda::device::{Buffer, Dtype, Gpu, Ptr};
use treeline_cuda::testing::{from_bf16, relative_error, to_bf16};

/// As the type holds them.
pub fn round(dtype: Dtype, x: &[f32]) -> Vec<f32> {
    if dtype == Dtype::Bf16 { from_bf16(&to_bf16(x)) } else { x.to_vec() }
}

/// Numbers on a device.
pub fn upload(gpu: &Gpu, dtype: Dtype, x: &[f32]) -> Buffer<u8> {
    let bytes: Vec<u8> = match dtype {
        Dtype::F32 => x.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Dtype::Bf16 => to_bf16(x).iter().flat_map(|x| x.to_ne_bytes()).collect(),
    };
    gpu.upload("test data", &bytes).unwrap()
}

/// Memory that is full of NaN in either type.
pub fn poisoned<T: bytemuck::Pod>(gpu: &Gpu, len: usize) -> Buffer<T> {
    let buffer = gpu.alloc("test data", len).unwrap();
    gpu.fill(&buffer, 0xFF).unwrap();
    buffer
}

/// Numbers from a device.
pub fn download(gpu: &Gpu, dtype: Dtype, from: Ptr, bytes: usize) -> Vec<f32> {
    match dtype {
        Dtype::F32 => gpu.read::<f32>(from, bytes / 4).unwrap(),
        Dtype::Bf16 => from_bf16(&gpu.read::<u16>(from, bytes / 2).unwrap()),
    }
}

/// Largest ‖got − want‖ / ‖want‖ of the vectors of `width` numbers; NaN counts as infinite.
pub fn worst(got: &[f32], want: &[f32], width: usize) -> f64 {
    assert_eq!(got.len(), want.len());
    let pairs = got.chunks(width).zip(want.chunks(width));
    pairs.map(|(g, w)| relative_error(g, w)).fold(0.0, f64::max)
}
