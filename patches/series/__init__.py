# Copyright 2026 The JAX Authors. All Rights Reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# ==============================================================================
"""The patches, one module each, named after the subject of its patch."""

# The order in which they apply.
ORDER: tuple[str, ...] = (
    "compile_kernels_for_a_b200_without_a_gpu",
    "describe_matmuls_of_one_tcgen05_mma_call_for_tests",
    "add_the_tile_arithmetic_of_multi_tile_tcgen05_mma",
    "slice_tmem_references_by_row_tiles",
    "load_and_store_tmem_references_of_several_row_tiles",
    "size_tmem_allocations_by_their_layout",
    "issue_several_m_tiles_and_a_short_last_n_tile",
    "support_sparse_mma_over_several_m_and_n_tiles",
    "support_block_scaled_mma_over_several_m_and_n_tiles",
    "support_a_in_tmem_for_several_m_tiles",
    "support_tf32_in_tcgen05_mma_dense_and_sparse",
    "issue_many_tcgen05_mma_instructions_at_a_low_cost",
    "say_why_sparse_mma_with_m_64_is_refused",
    "add_pruning_and_compression_to_structured_sparsity",
    "let_a_simulator_take_over_the_lowering_of_kernels",
    "infer_supported_register_layouts_for_8_bit_tmem_transfers",
    "lift_the_limits_of_tmem_refs_in_a_refunion",
    "accept_only_the_sparsity_selectors_0_and_1",
    "support_sparse_4_bit_and_tf32_mma_in_warpgroup_semantics",
    "format_sparse_metadata_of_4_bit_types_and_tf32",
    "check_the_memory_space_of_sparse_metadata",
    "check_sparse_metadata_while_tracing",
    "check_block_scales_while_tracing",
    "say_which_rows_of_tmem_can_be_sliced",
    "test_more_rows_of_sparse_mma_in_gpu_test",
    "test_tcgen05_mma_over_several_tiles",
    "see_races_between_operations_that_are_far_apart",
    "interpret_sparse_and_block_scaled_tcgen05_mma",
    "interpret_tcgen05_operations_of_two_ctas",
    "simulator_model_the_memories_of_an_sm",
    "simulator_execute_ptx",
    "simulator_floating_point_and_conversions",
    "simulator_matrix_fragments",
    "simulator_tma",
    "simulator_tcgen05",
    "simulator_run_kernels",
    "simulator_compare_with_an_h200",
    "add_a_sparse_matmul_example_for_blackwell",
    "add_a_sparse_matmul_kernel_for_blackwell",
    "simulator_run_jax_s_own_kernels",
)
