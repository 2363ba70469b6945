extern int sim_cuda_placeholder;int sim_cuda_placeholder;
