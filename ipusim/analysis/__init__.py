"""What a Timeline says about a run: phases, utilisation, bubble, throughput; pure functions, vectorised."""
