# find_package(metal_dlpack CONFIG): the target metal_dlpack::headers, the include path of metal_dlpack.h.
#
# Nothing is linked.  The header includes Python.h, which comes with Python::Module or nanobind.

if(NOT TARGET metal_dlpack::headers)
  get_filename_component(metal_dlpack_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
  add_library(metal_dlpack::headers INTERFACE IMPORTED)
  set_target_properties(metal_dlpack::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${metal_dlpack_INCLUDE_DIR}")
endif()
