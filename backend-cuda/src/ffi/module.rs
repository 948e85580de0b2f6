//! Loaded machine code and its kernels.

use super::context::Context;
use super::driver::check;
use super::stream::Stream;
use crate::error::{CudaError, Result};
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
use std::ffi::CString;
use std::sync::Arc;

/// Machine code on a GPU.
#[derive(Debug)]
pub(crate) struct Module {
    handle: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(context: Arc<Context>, cubin: &[u8], what: &str) -> Result<Self> {
        context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a whole cubin, whose header gives its size; read during the call only.
        let code = unsafe { sys::cuModuleLoadData(&raw mut handle, cubin.as_ptr().cast()) };
        check(code, &format!("loading the kernels of {what}"))?;
        Ok(Self { handle, context })
    }

    /// A kernel by its name. `shared` is the most shared memory of a block, in bytes, all of which it may use.
    ///
    /// # Errors
    /// No such kernel, or one that takes more than one argument.
    pub fn function(self: &Arc<Self>, name: &'static str, shared: u32) -> Result<Function> {
        self.context.enter()?;
        let not = |why: String| CudaError::Kernel { kernel: name.into(), why };
        let c_name = CString::new(name).map_err(|_| not("a zero byte in its name".into()))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name terminated.
        let code = unsafe { sys::cuModuleGetFunction(&raw mut handle, self.handle, c_name.as_ptr()) };
        check(code, &format!("finding kernel `{name}`"))?;
        let (mut offset, mut size, mut more) = (0, 0, 0);
        // SAFETY: writes two integers. An index beyond the arguments is an error code.
        let first = unsafe { sys::cuFuncGetParamInfo(handle, 0, &raw mut offset, &raw mut size) };
        check(first, &format!("asking for the arguments of kernel `{name}`"))?;
        // SAFETY: as above.
        if unsafe { sys::cuFuncGetParamInfo(handle, 1, &raw mut offset, &raw mut more) } == sys::CUresult::CUDA_SUCCESS
        {
            return Err(not("it takes more than one argument".into()));
        }
        let function = Function { handle, name, arguments: size, module: self.clone() };
        let own = function.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let most = i64::from(shared) - i64::from(own);
        let most = i32::try_from(most.max(0)).unwrap_or(0);
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the handle is valid. Without it a launch with more than 48 KiB is refused.
        let code = unsafe { sys::cuFuncSetAttribute(handle, attribute, most) };
        check(code, &format!("giving kernel `{name}` {most} bytes of shared memory"))?;
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: loaded once, unloaded once; its functions hold it.
            let _ = unsafe { sys::cuModuleUnload(self.handle) };
        }
    }
}

/// Blocks, threads of a block, bytes of dynamic shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub grid: [u32; 3],
    pub block: u32,
    pub shared: u32,
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct Function {
    handle: sys::CUfunction,
    pub name: &'static str,
    /// Size of its argument struct in bytes.
    pub arguments: usize,
    module: Arc<Module>,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    fn attribute(&self, attribute: Attribute) -> Result<i32> {
        self.module.context.enter()?;
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.handle) };
        check(code, "asking for a property of a kernel")?;
        Ok(value)
    }

    /// Queues it; `early`: its blocks may start while the work before it still runs.
    ///
    /// # Errors
    /// Arguments of another size, or the driver's.
    pub fn launch(&self, stream: &Stream, shape: Shape, early: bool, arguments: &[u8]) -> Result<()> {
        if arguments.len() != self.arguments {
            let why = format!("it takes {} bytes of arguments, not {}", self.arguments, arguments.len());
            return Err(CudaError::Kernel { kernel: self.name.into(), why });
        }
        stream.context.enter()?;
        let mut list = [arguments.as_ptr().cast_mut().cast()];
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.shared,
            hStream: stream.raw(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(early),
        };
        // SAFETY: the one argument has the size that the kernel takes; it, the shape and the attribute are read during the call.
        let code =
            unsafe { sys::cuLaunchKernelEx(&raw const config, self.handle, list.as_mut_ptr(), std::ptr::null_mut()) };
        if code == sys::CUresult::CUDA_SUCCESS {
            Ok(())
        } else {
            check(code, &format!("launching `{}`, {shape:?}", self.name))
        }
    }
}
